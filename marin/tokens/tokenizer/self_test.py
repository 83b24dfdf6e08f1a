"""What a tokenizer must prove before it is published."""

from __future__ import annotations

import json
import pickle
import unicodedata
from collections.abc import Iterator
from typing import Any

from marin.tokens.tokenizer.codec import TextCodec

HARD_TEXTS = (
    "",
    "hello world",
    " leading",
    "  two leading",
    "trailing ",
    "tab\tand\nnewline",
    "crlf\r\nline",
    "no\u00a0break",
    "\ufeffmark",
    "nul\x00inside",
    "caf\u00e9 cafe\u0301",
    "\u1e9b\u0323 \ufb01 \uff21\uff22",
    "\u0639\u0631\u0628\u064a \u12a0\u121b\u122d\u129b \u6771\u4eac\u90fd \u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22",
    "\U0001f469\u200d\U0001f4bb\U0001f1fa\U0001f1f3",
    "\u200bzero\u200bwidth\u2028line",
    "e = mc\u00b2, 1234567890, 3.14",
    "    if x:\n\t\treturn {'a': [1, 2]}\n",
    "a" * 500,
    " " * 500,
    "\n\n\n",
    "\U0010ffff\ue000",
    "Don't we'll I'VE",
    "#!/bin/sh --x=$(y) && z || <|w|>",
)


class SelfTestFailed(ValueError):
    """A tokenizer loses text or lets text become a special token."""


EVERY_BYTE = frozenset(range(256))
BYTES_OF_TEXT = EVERY_BYTE - {0xC0, 0xC1, *range(0xF5, 0x100)}
"""The bytes that UTF-8 text can hold (RFC 3629)."""


def check_codec(codec: TextCodec, *, of_documents: bool = False) -> None:
    """Raise :class:`SelfTestFailed` unless the tokenizer is exact.

    Checked: all bytes are entries; every hard text comes back, also after pickling; the spelling of every special token
    is inert inside a text; every added token comes back with the white space around it; edge tokens stand at the edges,
    once; no part of it rewrites or leaves out text. With ``of_documents`` only what stored documents hold must come
    back: UTF-8 bytes, text in NFC.
    """
    for fault in _rewriting_parts(json.loads(codec.definition), of_documents):
        raise SelfTestFailed(fault)
    needed = BYTES_OF_TEXT if of_documents else EVERY_BYTE
    found = {codec.token_bytes(token) for token in range(codec.real_vocab_size) if token not in codec.special_ids}
    missing = [value for value in sorted(needed) if bytes([value]) not in found]
    if missing:
        raise SelfTestFailed(f"the vocabulary lacks {len(missing)} of the {len(needed)} bytes, first {missing[0]:#04x}")
    copy: TextCodec = pickle.loads(pickle.dumps(codec))
    spellings = [codec.token_bytes(token).decode("utf-8") for token in sorted(codec.special_ids)]
    added = [entry["content"] for entry in json.loads(codec.definition)["added_tokens"] if not entry["special"]]
    mixed = [
        text
        for spelling in (*spellings, *added)
        for text in (spelling, f"a{spelling}b", f" {spelling} {spelling}\n", f"a \t {spelling}\n\n  b")
    ]
    for hard in (*HARD_TEXTS, *mixed):
        text = unicodedata.normalize("NFC", hard) if of_documents else hard
        ids = codec.encode(text)
        if codec.special_ids.intersection(ids):
            raise SelfTestFailed(f"the text {text!r} encodes to a special token")
        if codec.decode(ids) != text:
            raise SelfTestFailed(f"the text {text!a} comes back as {codec.decode(ids)!a}")
        if copy.encode(text) != ids:
            raise SelfTestFailed(f"the text {text!r} encodes otherwise after saving and loading")
        framed = codec.encode_document(text)
        if framed != codec.frame(ids) or len(framed) != len(ids) + sum(
            x is not None for x in (codec.bos_id, codec.eos_id)
        ):
            raise SelfTestFailed(f"the text {text!r} does not get its edge tokens exactly once")


def _rewriting_parts(definition: dict[str, Any], of_documents: bool) -> Iterator[str]:
    """Parts of a ``tokenizer.json`` that are there to change text, which no list of texts could show for certain."""
    for part in _parts(definition.get("normalizer"), "normalizers"):
        if not (of_documents and part["type"] == "NFC"):
            yield f"its normalizer {part['type']} rewrites text before it is encoded"
    for part in _parts(definition.get("pre_tokenizer"), "pretokenizers"):
        if part.get("behavior") == "Removed":
            yield f"its pre-tokenizer {part['type']} leaves out what it splits at (behavior 'Removed')"


def _parts(part: dict[str, Any] | None, inner: str) -> Iterator[dict[str, Any]]:
    if part is None:
        return
    if part["type"] == "Sequence":
        for one in part[inner]:
            yield from _parts(one, inner)
    else:
        yield part
