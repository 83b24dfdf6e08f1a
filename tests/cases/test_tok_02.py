"""tok-02: a byte-level tokenizer trained on ASCII gives back every probe, also after saving and loading."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from marin.tokens.tokenizer.codec import TextCodec
from marin.tokens.tokenizer.config import SpecialTokens, TokenizerConfig
from marin.tokens.tokenizer.training import train_bpe
from tests.tokens.building import prose

PROBES = (
    "hello world",
    " leading space",
    "  two leading",
    "trailing space ",
    "tab\tand\nnewline",
    "crlf\r\nline",
    "a\u00a0b",
    "\ufeffbom",
    "nul\x00inside",
    "caf\u00e9",
    "cafe\u0301",
    "\u1e9b\u0323",
    "\ufb01 ligature",
    "\uff21\uff22 wide",
    "\u0639\u0631\u0628\u064a",
    "\u12a0\u121b\u122d\u129b",
    "\u6771\u4eac\u90fd",
    "\U0001f469\u200d\U0001f4bb",
    "\U0001f1fa\U0001f1f3",
    "\u200bzero\u200bwidth",
    "\u2028line sep",
    "e = mc\u00b2",
    "1234567890",
    "    indented code",
    "a" * 50,
    "",
    "\U0010ffff",
    "\ue000",
    "\n\n\n",
    "Don't stop",
)


@pytest.fixture(scope="module")
def definition() -> str:
    texts = [prose(seed, 200) for seed in range(20)]
    assert all(text.isascii() for text in texts)
    return train_bpe(texts, TokenizerConfig(vocab_size=500, special=SpecialTokens(reserved=0)))


def test_every_probe_comes_back_byte_for_byte(definition: str, tmp_path: Path):
    codec = TextCodec(definition)
    path = tmp_path / "tokenizer.json"
    path.write_text(definition, encoding="utf-8")
    loaded = TextCodec(path.read_text(encoding="utf-8"))
    for probe in PROBES:
        ids = codec.encode(probe)
        assert codec.decode_bytes(ids) == probe.encode()
        assert loaded.encode(probe) == ids


def test_all_256_bytes_are_entries_and_nothing_rewrites_or_replaces_text(definition: str):
    codec = TextCodec(definition)
    parsed = json.loads(definition)
    single = {codec.token_bytes(token) for token in range(codec.real_vocab_size)}
    assert {bytes([value]) for value in range(256)} <= single
    assert parsed["normalizer"] is None
    assert parsed["model"]["unk_token"] is None
