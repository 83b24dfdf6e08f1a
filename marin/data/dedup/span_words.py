"""The words of a text where they stand, and hashes of runs of them.

Imports numpy; import this module inside step bodies only.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marin.data.filtering.splitting import split_piece
from marin.data.filtering.words import mix, plain_word

Hashes = NDArray[np.uint64]
Places = NDArray[np.int64]

_PIECE = re.compile(r"\S+")
_FACTOR = 0x9E3779B97F4A7C15
_PLACE_BITS = np.uint64(32)
_PLACE_MASK = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True)
class PlacedWords:
    """The plain words of a text: those that n-grams are made of.

    Attributes:
        text: the text.
        words: each word in its plain form.
        starts: where each begins in the text; the first of a piece between spaces begins with the piece.
        ends: where each ends; the last of a piece ends with the piece.
    """

    text: str
    words: list[str]
    starts: list[int]
    ends: list[int]

    def between(self, first: int, after: int) -> str:
        """Some of the words, with a space between two."""
        return " ".join(self.words[first:after])


def placed_words(text: str) -> PlacedWords:
    """The words of a text: the same, in number and order, as `plain_hashes_of` hashes."""
    words: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for piece in _PIECE.finditer(text):
        begin = piece.start()
        found = _plain_words(piece.group())
        for word, start, end in found:
            words.append(word)
            starts.append(begin + start)
            ends.append(begin + end)
    return PlacedWords(text, words, starts, ends)


@functools.lru_cache(maxsize=200_000)
def _plain_words(piece: str) -> tuple[tuple[str, int, int], ...]:
    """(plain form, start, end) of the words of a piece that have a plain form. Signs around them are taken along."""
    found: list[tuple[str, int, int]] = []
    at = 0
    for word in split_piece(piece):
        plain = plain_word(word)
        if plain:
            found.append((plain, at, at + len(word)))
        at += len(word)
    if found:
        found[0] = (found[0][0], 0, found[0][2])
        found[-1] = (*found[-1][:2], len(piece))
    return tuple(found)


def window_hashes(words: Hashes, size: int) -> Hashes:
    """What `n_gram_hashes` gives, in as many steps as the size has bits: long n-grams are made of shorter ones."""
    count = len(words) - size + 1
    if count <= 0:
        return np.zeros(0, np.uint64)
    part, length, factor = words, 1, _FACTOR
    made: Hashes | None = None
    made_length = 0
    with np.errstate(over="ignore"):
        while True:
            if size & length:
                if made is None:
                    made = part
                else:
                    room = len(words) - made_length - length + 1
                    made = made[:room] * np.uint64(factor) + part[made_length : made_length + room]
                made_length += length
            if 2 * length > size:
                break
            part = part[:-length] * np.uint64(factor) + part[length:]
            length, factor = 2 * length, factor * factor % 2**64
    assert made is not None
    return mix(made[:count])


@dataclass(frozen=True)
class Anchors:
    """Places of a text that stand for its n-grams of ``size`` words: equal n-grams have equal anchors.

    The anchor of an n-gram is the least of the shorter n-grams in it (winnowing: Schleimer, Wilkerson and Aiken 2003,
    https://doi.org/10.1145/872757.872770), so that neighbours mostly share one: of 50-grams about one in thirteen.

    Attributes:
        of_windows: for each n-gram of the text, the number of its anchor in ``hashes``.
        hashes: hash of each anchor, in the order of the text.
    """

    of_windows: Places
    hashes: Hashes


def anchors_of(words: Hashes, size: int) -> Anchors:
    """The anchors of a text's n-grams, given the hashes of its words."""
    short = (size + 1) // 2
    hashes = window_hashes(words, short)
    width = size - short + 1
    if len(hashes) < width:
        return Anchors(np.zeros(0, np.int64), np.zeros(0, np.uint64))
    # The place lies below the hash: of equal ones the first counts, wherever the n-gram stands.
    keys = (hashes & ~_PLACE_MASK) | np.arange(len(hashes), dtype=np.uint64)
    places = (_least_of_windows(keys, width) & _PLACE_MASK).astype(np.int64)
    begins = np.concatenate([[True], places[1:] != places[:-1]])
    return Anchors(np.cumsum(begins) - 1, hashes[places[begins]])


def _least_of_windows(keys: Hashes, width: int) -> Hashes:
    """The least of each run of ``width`` keys."""
    count = len(keys) - width + 1
    least, length = keys, 1
    while 2 * length <= width:
        least = np.minimum(least[:-length], least[length:])
        length *= 2
    return np.minimum(least[:count], least[width - length : width - length + count])


def cut_range(placed: PlacedWords, first: int, after: int) -> tuple[int, int]:
    """Characters [start, end) to cut for a run of words, so that one gap stays where two would meet."""
    text = placed.text
    start, end = placed.starts[first], placed.ends[after - 1]
    before = start - len(text[:start].rstrip())
    behind = len(text) - end - len(text[end:].lstrip())
    if before == start:
        return 0, end + behind
    if end + behind == len(text):
        return start - before, len(text)
    if before and behind:
        if text.count("\n", end, end + behind) > text.count("\n", start - before, start):
            return start - before, end
        return start, end + behind
    return start, end
