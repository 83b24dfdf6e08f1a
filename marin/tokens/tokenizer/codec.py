"""Text to ids and back, where no text can ever become a special token."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import tokenizers

from marin.tokens.tokenizer.artifacts import TOKENIZER_FILE, Tokenizer
from marin.tokens.tokenizer.config import LLAMA3_SPLIT

PIECE_CHARS = 1 << 20
"""Longer texts are encoded in pieces of about this size, where the split pattern allows a cut."""

LONGEST_PIECE_CHARS = 1 << 21
"""Text without such a place is cut here: the regular expression engine gives up on single matches of ten million."""

_WORD_GAP = re.compile(r"(?<=[^\W\d_])(?= [^\W\d_])")


class TextCodec:
    """Encodes text to ids and decodes ids to text.

    The spelling of a special token inside a text is encoded as the ordinary bytes that it is. Decoding gives back the
    exact text. Picklable.

    Args:
        definition: content of a ``tokenizer.json``.
        bos_id: id that documents begin with, or None for none.
        eos_id: id that documents end with, or None for none.
    """

    def __init__(self, definition: str, *, bos_id: int | None = None, eos_id: int | None = None) -> None:
        self.definition = definition
        self.bos_id = bos_id
        self.eos_id = eos_id
        self._tokenizer = tokenizers.Tokenizer.from_str(definition)
        self._tokenizer.encode_special_tokens = True
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        parsed = json.loads(definition)
        self._cuts_at_gaps = _split_patterns(parsed) == [LLAMA3_SPLIT]
        self._bytes = _token_bytes(parsed)
        self.special_ids = frozenset(entry["id"] for entry in parsed["added_tokens"] if entry["special"])
        for name, token in (("bos", bos_id), ("eos", eos_id)):
            if token is not None and token not in self.special_ids:
                raise ValueError(f"{name}_id {token} is not the id of a special token of this tokenizer")

    @classmethod
    def named(cls, definition: str, *, bos: str | None = None, eos: str | None = None) -> TextCodec:
        """A codec whose edge tokens are given by their spelling.

        Raises:
            ValueError: the tokenizer has no special token of that spelling.
        """
        return cls(
            definition,
            bos_id=None if bos is None else special_token(definition, "bos", bos),
            eos_id=None if eos is None else special_token(definition, "eos", eos),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.definition, self.bos_id, self.eos_id)

    @property
    def real_vocab_size(self) -> int:
        """Number of entries, special ones included."""
        return len(self._bytes)

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without edge tokens."""
        return self.encode_batch([text])[0]

    def encode_document(self, text: str) -> list[int]:
        """Ids of a document, with the edge tokens of this codec exactly once."""
        return self.frame(self.encode(text))

    def frame(self, ids: list[int]) -> list[int]:
        """Ids of a document's body with its edge tokens."""
        before = [] if self.bos_id is None else [self.bos_id]
        after = [] if self.eos_id is None else [self.eos_id]
        return [*before, *ids, *after]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of several texts, without edge tokens; uses the threads that ``tokenizers`` is allowed."""
        if all(len(text) <= PIECE_CHARS for text in texts):
            return [found.ids for found in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
        return [self._encode_long(text) for text in texts]

    def _encode_long(self, text: str) -> list[int]:
        ids: list[int] = []
        for piece in self.pieces(text):
            ids.extend(self._tokenizer.encode_batch_fast([piece], add_special_tokens=False)[0].ids)
        return ids

    def pieces(self, text: str, size: int = PIECE_CHARS, longest: int = LONGEST_PIECE_CHARS) -> Iterator[str]:
        """The text in pieces of about ``size`` characters whose encodings, joined, are that of the whole.

        With the Llama-3-style pattern a word cannot reach over the blank before the next one, so a gap between two
        words is a safe place to cut. Text that has no such gap, and text under another pattern, is cut after
        ``longest`` characters: there ids may differ from an encoding of the whole, which would need unbounded memory.
        """
        start = 0
        while len(text) - start > size:
            limit = start + longest
            gap = _WORD_GAP.search(text, start + size, limit + 1) if self._cuts_at_gaps else None
            if gap is None and len(text) <= limit:
                break
            end = limit if gap is None else gap.start()
            yield text[start:end]
            start = end
        yield text[start:]

    def decode(self, ids: Sequence[int], *, skip_special: bool = False) -> str:
        """The text of ids. Bytes that are no UTF-8 (half a character) become U+FFFD.

        Raises:
            IndexError: an id lies beyond the real vocabulary.
        """
        return self.decode_bytes(ids, skip_special=skip_special).decode("utf-8", "replace")

    def decode_bytes(self, ids: Sequence[int], *, skip_special: bool = False) -> bytes:
        """The exact bytes of ids."""
        table, special = self._bytes, self.special_ids
        return b"".join(table[token] for token in ids if not (skip_special and token in special))

    def token_bytes(self, token: int) -> bytes:
        """The bytes that one id stands for; for a special token, its spelling."""
        return self._bytes[token]


def special_token(definition: str, name: str, spelling: str) -> int:
    """The id of the special token of a spelling, which is to be used as ``name``.

    Raises:
        ValueError: the ``tokenizer.json`` has no such special token.
    """
    special = {entry["content"]: entry["id"] for entry in json.loads(definition)["added_tokens"] if entry["special"]}
    if spelling not in special:
        known = ", ".join(sorted(special)) or "none"
        raise ValueError(f"{name} token {spelling!r} is not a special token of this tokenizer; it has: {known}")
    found: int = special[spelling]
    return found


def load_codec(tokenizer: Tokenizer) -> TextCodec:
    """The codec of a materialised tokenizer, with the edge tokens it was configured for."""
    return TextCodec(
        tokenizer.read(TOKENIZER_FILE).decode("utf-8"),
        bos_id=tokenizer.bos_id if tokenizer.add_bos else None,
        eos_id=tokenizer.eos_id if tokenizer.add_eos else None,
    )


def byte_symbols() -> dict[str, int]:
    """The printable character that stands for each byte in a byte-level vocabulary (the GPT-2 table)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(value): value for value in printable}
    others = (value for value in range(256) if value not in set(printable))
    return table | {chr(256 + index): value for index, value in enumerate(others)}


def _restore(definition: str, bos_id: int | None, eos_id: int | None) -> TextCodec:
    return TextCodec(definition, bos_id=bos_id, eos_id=eos_id)


def _token_bytes(parsed: dict[str, Any]) -> list[bytes]:
    symbols = byte_symbols()
    added = {entry["id"]: entry["content"].encode("utf-8") for entry in parsed["added_tokens"]}
    by_id = {token: spelling for spelling, token in parsed["model"]["vocab"].items() if token not in added}
    size = max([*by_id, *added], default=-1) + 1
    table: list[bytes] = []
    for token in range(size):
        if token in added:
            table.append(added[token])
        elif token in by_id:
            table.append(_spelled(by_id[token], symbols))
        else:
            raise ValueError(f"the tokenizer has no entry for id {token}, below its largest id {size - 1}")
    return table


def _spelled(spelling: str, symbols: dict[str, int]) -> bytes:
    try:
        return bytes(symbols[symbol] for symbol in spelling)
    except KeyError as error:
        raise ValueError(
            f"vocabulary entry {spelling!r} is not spelled in byte symbols; only byte-level is read"
        ) from error


def _split_patterns(parsed: dict[str, Any]) -> list[str]:
    pre_tokenizer = parsed.get("pre_tokenizer") or {}
    parts = pre_tokenizer.get("pretokenizers", [pre_tokenizer])
    return [part["pattern"].get("Regex", "") for part in parts if part.get("type") == "Split"]
