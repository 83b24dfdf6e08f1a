from __future__ import annotations

import json

import pytest

from marin.tokens.tokenizer.codec import TextCodec, byte_symbols, load_codec
from marin.tokens.tokenizer.config import TokenizerConfig
from marin.tokens.tokenizer.self_test import SelfTestFailed, check_codec
from marin.tokens.tokenizer.training import train_bpe
from tests.tokens.building import prose


@pytest.fixture(scope="module")
def definition() -> str:
    return train_bpe([prose(index, 400) for index in range(20)], TokenizerConfig(vocab_size=500))


def test_ids_of_every_byte_spell_that_byte(definition: str):
    codec = TextCodec(definition)
    table = {codec.token_bytes(token) for token in range(codec.real_vocab_size)}
    assert {bytes([value]) for value in range(256)} <= table
    assert sorted(byte_symbols().values()) == list(range(256))


def test_pieces_encode_like_the_whole(definition: str):
    codec = TextCodec(definition)
    text = "It's 1234 words, don't   split!\n\n  Naïve 東京 'll we'll " * 40 + prose(5, 3000)
    whole = codec.encode(text)
    for size in (1, 7, 100, 5000):
        pieces = list(codec.pieces(text, size))
        assert "".join(pieces) == text
        assert [token for piece in pieces for token in codec.encode(piece)] == whole
    assert len(list(codec.pieces(text, 100))) > 50


def test_unbroken_text_and_other_patterns_are_cut_at_the_longest_piece_only(definition: str):
    other = TextCodec(train_bpe(["a b c"], TokenizerConfig(split_pattern=r"\s+", vocab_size=300)))
    for codec, text in ((other, "word " * 100), (TextCodec(definition), "x" + " " * 499)):
        assert list(codec.pieces(text, 10)) == [text]
        assert [len(piece) for piece in codec.pieces(text, 10, 200)] == [200, 200, 100]
        assert "".join(codec.pieces(text, 10, 200)) == text


@pytest.mark.slow
def test_a_run_longer_than_the_engine_matches_is_encoded(definition: str):
    codec = TextCodec(definition)
    text = " " * 11_000_000
    assert codec.decode(codec.encode(text)) == text


def test_half_a_character_decodes_to_a_mark_and_exact_bytes(definition: str):
    codec = TextCodec(definition)
    ids = codec.encode("é")
    assert codec.decode_bytes(ids) == "é".encode()
    assert codec.decode(ids[:1]) in ("é", "\ufffd")
    with pytest.raises(IndexError):
        codec.decode([codec.real_vocab_size])


def test_decoding_can_leave_special_tokens_out(tokenizer):
    codec = load_codec(tokenizer)
    ids = codec.encode_document("hello")
    assert codec.decode(ids) == "<|bos|>hello<|eos|>"
    assert codec.decode(ids, skip_special=True) == "hello"


def test_the_self_test_refuses_a_vocabulary_without_all_bytes(definition: str):
    parsed = json.loads(definition)
    merges_without = [pair for pair in parsed["model"]["merges"] if "Ċ" not in "".join(pair)]
    kept = [spelling for spelling in parsed["model"]["vocab"] if "Ċ" not in spelling]
    parsed["model"]["merges"] = merges_without
    parsed["model"]["vocab"] = {spelling: index for index, spelling in enumerate(kept)}
    with pytest.raises(SelfTestFailed, match="lacks 1 of the 256 bytes, first 0x0a"):
        check_codec(TextCodec(json.dumps(parsed)))


def test_the_self_test_refuses_a_normalizer_that_changes_text(definition: str):
    parsed = json.loads(definition)
    parsed["normalizer"] = {"type": "NFC"}
    with pytest.raises(SelfTestFailed, match="its normalizer NFC rewrites text"):
        check_codec(TextCodec(json.dumps(parsed)))


def test_the_file_opened_by_other_tools_adds_bos_once(definition: str):
    import tokenizers

    ids = tokenizers.Tokenizer.from_str(definition).encode("the time").ids
    codec = TextCodec(definition)
    assert ids == [0, *codec.encode("the time")]
