"""Distinct word n-grams of many texts, as sorted arrays of hashes.

Imports numpy; import this module inside step bodies only.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from marin.data.filtering.minhash import shingles
from marin.data.filtering.words import WordTable, n_gram_hashes

Hashes = NDArray[np.uint64]

_BATCH = 2_000_000
"""Characters of text whose words are looked up at once."""


_of_thread = threading.local()


def _table() -> WordTable:
    """The word table of this thread: what one text's words cost is saved for the next."""
    table: WordTable | None = getattr(_of_thread, "table", None)
    if table is None:
        table = _of_thread.table = WordTable()
    return table


def grams_of_all(texts: Sequence[str], size: int) -> list[Hashes]:
    """The distinct n-grams of each text; a text with fewer words is one n-gram, one without words has none.

    Args:
        texts: the texts.
        size: words of an n-gram.
    """
    found: list[Hashes] = []
    batch: list[str] = []
    held = 0
    for text in texts:
        if len(text) > _BATCH:
            found += _grams_of_batch(batch, size)
            found.append(shingles(np.concatenate([_plain(part) for part in pieces_of(text, _BATCH)]), size))
            batch, held = [], 0
            continue
        batch.append(text)
        held += len(text)
        if held >= _BATCH:
            found += _grams_of_batch(batch, size)
            batch, held = [], 0
    return found + _grams_of_batch(batch, size)


def pieces_of(text: str, size: int) -> Iterator[str]:
    """A long text in parts of about so many characters, cut at white space, so that no word is cut."""
    start = 0
    while len(text) - start > size:
        end = start + size
        while end < len(text) and not text[end].isspace():
            end += 1
        yield text[start:end]
        start = end
    yield text[start:]


def _plain(text: str) -> Hashes:
    table = _table()
    words, _ = table.split([text.split()])
    hashes: Hashes = table.plain_hashes[words]
    hashes = hashes[hashes != 0]
    return hashes


def _grams_of_batch(texts: Sequence[str], size: int) -> list[Hashes]:
    if not texts:
        return []
    table = _table()
    words, counts = table.split([text.split() for text in texts])
    hashes: Hashes = table.plain_hashes[words]
    plain = hashes != 0
    before = np.concatenate([[0], np.cumsum(plain)])
    ends = before[np.cumsum(counts)]
    hashes = hashes[plain]
    # One array for all texts; the n-grams that reach over the end of one are passed over.
    grams = n_gram_hashes(hashes, size)
    found: list[Hashes] = []
    start = 0
    for end in ends.tolist():
        found.append(
            _distinct(grams[start : end - size + 1]) if end - start >= size else shingles(hashes[start:end], size)
        )
        start = end
    return found


def _distinct(grams: Hashes) -> Hashes:
    ascending = np.sort(grams)
    first = np.empty(len(ascending), bool)
    first[:1] = True
    np.not_equal(ascending[1:], ascending[:-1], out=first[1:])
    found: Hashes = ascending[first]
    return found
