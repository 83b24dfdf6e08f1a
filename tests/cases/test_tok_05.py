"""tok-05: very long and unbroken documents are encoded in linear time, and pieces like the whole."""

from __future__ import annotations

import base64
import random
import time

import pytest

from marin.tokens.tokenizer.codec import PIECE_CHARS, TextCodec
from marin.tokens.tokenizer.config import TokenizerConfig
from marin.tokens.tokenizer.training import train_bpe
from tests.tokens.building import prose


def rows(scale: int) -> dict[str, str]:
    return {
        "spaces": "start" + " " * (1000 * scale) + "end",
        "one letter": "a" * (300 * scale),
        "base64": base64.b64encode(random.Random(0).randbytes(225 * scale)).decode(),
        "newlines": "x" + "\n" * (500 * scale) + "y",
        "underscores": "_" * (200 * scale),
        "no spaces": "東京都庁舎展望室夜景" * (14 * scale),
        "prose": prose(0, 150 * scale),
    }


@pytest.fixture(scope="module")
def codec() -> TextCodec:
    return TextCodec(train_bpe([prose(seed, 300) for seed in range(20)], TokenizerConfig(vocab_size=600)))


@pytest.mark.parametrize("name", rows(1))
def test_encoding_time_is_about_linear_and_the_text_comes_back(codec: TextCodec, name: str):
    seconds = []
    for scale in (100, 1000):
        text = rows(scale)[name]
        before = time.process_time()
        ids = codec.encode(text)
        seconds.append(time.process_time() - before)
        assert codec.decode(ids) == text
    assert seconds[1] < 10
    assert seconds[1] < 40 * max(seconds[0], 0.01)


def test_pieces_of_long_prose_encode_like_the_whole(codec: TextCodec):
    text = prose(1, 30_000)
    whole = codec.encode(text)
    pieces = list(codec.pieces(text, 5_000))
    assert len(pieces) > 20
    assert [token for piece in pieces for token in codec.encode(piece)] == whole


def test_a_document_longer_than_a_piece_is_cut_and_still_whole(codec: TextCodec):
    text = prose(2, 30_000)
    text *= PIECE_CHARS // len(text) + 2
    assert len(list(codec.pieces(text))) > 1
    assert codec.decode(codec.encode(text)) == text
