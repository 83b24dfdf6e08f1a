"""What a tokenizer must prove before it is published."""

from __future__ import annotations

import pickle
import unicodedata

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
    is inert inside a text; edge tokens stand at the edges, once. With ``of_documents`` only what stored documents hold
    must come back: UTF-8 bytes, text in NFC.
    """
    needed = BYTES_OF_TEXT if of_documents else EVERY_BYTE
    found = {codec.token_bytes(token) for token in range(codec.real_vocab_size) if token not in codec.special_ids}
    missing = [value for value in sorted(needed) if bytes([value]) not in found]
    if missing:
        raise SelfTestFailed(f"the vocabulary lacks {len(missing)} of the {len(needed)} bytes, first {missing[0]:#04x}")
    copy: TextCodec = pickle.loads(pickle.dumps(codec))
    spellings = [codec.token_bytes(token).decode("utf-8") for token in sorted(codec.special_ids)]
    mixed = [text for spelling in spellings for text in (spelling, f"a{spelling}b", f" {spelling} {spelling}\n")]
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
