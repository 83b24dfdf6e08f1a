"""Words of texts by number, once for every rule and for MinHash.

Text is cut at white space first, and the words of each piece are remembered, so that a frequent word costs one
dictionary access. What is known of a word lies in arrays, so that rules are sums over them.
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Generic, TypeVar

import numpy as np
import xxhash
from numpy.typing import NDArray

from marin.data.filtering.english import special_pieces
from marin.data.filtering.marks import marks_of_all
from marin.data.filtering.splitting import FINAL_SIGNS, UNSPACED_CHARACTER, split_piece

STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
"""Gopher's English stop words."""

# Bits of a word's kind.
SPOKEN = 1
"""Not punctuation alone."""
ALPHABETIC = 2
"""Holds a letter."""
FINAL = 4
"""Ends a sentence."""
PUNCTUATION = 8
"""Punctuation only."""
UNSPACED_WORD = 16
"""A character of a script without spaces."""
STOP_WORD_SHIFT = 5
"""The number of the stop word, counted from 1, in the bits from here on."""
KINDS = (len(STOP_WORDS) + 1) << STOP_WORD_SHIFT
"""Kinds are below this."""

_STOP_NUMBERS = {word: number << STOP_WORD_SHIFT for number, word in enumerate(STOP_WORDS, start=1)}
_ASCII_SIGNS = frozenset(string.punctuation)
_LOWER = bytes(range(128)).lower() + bytes(range(128, 256))
_SIGNS_OF_ASCII = bytes(sign for sign in range(128) if not chr(sign).isalnum() and sign != ord("\n"))
_REMEMBERED = 64
"""Characters of the longest piece that is remembered."""

_Scalar = TypeVar("_Scalar", bound=np.generic)

Words = NDArray[np.int64]


@dataclass(frozen=True)
class Cut:
    """Pieces of text cut into words.

    Attributes:
        words: the number of every word.
        counts: words in each piece.
        personal: for each piece, whether it may hold personal data.
    """

    words: Words
    counts: NDArray[np.int64]
    marks: NDArray[np.uint8]


class WordTable:
    """Words seen so far, with what is known of each: arrays that are indexed by word number.

    A number depends on what was seen before; lengths, kinds and hashes do not. Numbers are valid until ``numbers`` or
    ``split`` is called again.

    Args:
        capacity: number of pieces, and of words, to remember; above it the table starts afresh, so that memory stays
            bounded.
    """

    def __init__(self, capacity: int = 400_000) -> None:
        self._capacity = capacity
        self._reset()

    def _reset(self) -> None:
        self._pieces: dict[str, int] = {}
        self._words: dict[str, int] = {}
        # Words of all pieces behind one another, and where those of each piece begin and how many they are.
        self._cut = _Column(np.int64)
        self._starts = _Column(np.int64)
        self._counts = _Column(np.int64)
        self._marks = _Column(np.uint8)
        self._lengths = _Column(np.int64)
        self._kinds = _Column(np.int64)
        self._plain_hashes = _Column(np.uint64)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Characters of each word."""
        return self._lengths.values

    @property
    def kinds(self) -> NDArray[np.int64]:
        """What each word is, as bits."""
        return self._kinds.values

    @property
    def plain_hashes(self) -> NDArray[np.uint64]:
        """Hash of each word's plain form, zero for a word that has none."""
        return self._plain_hashes.values

    def numbers(self, pieces: Sequence[str]) -> NDArray[np.int64]:
        """The numbers of pieces that hold no white space."""
        # Long pieces are not remembered, but what is known of them takes room.
        if max(len(self._counts.values), len(self._words)) > self._capacity:
            self._reset()
        found = list(map(self._pieces.get, pieces))
        missing = [piece for piece, number in zip(pieces, found, strict=True) if number is None]
        if missing:
            new = self._add(list(dict.fromkeys(missing)))
            self._pieces.update(new)
            for piece in [piece for piece in new if len(piece) > _REMEMBERED]:
                del self._pieces[piece]
            found = [new[piece] if number is None else number for piece, number in zip(pieces, found, strict=True)]
        return np.array(found, np.int64)

    def _add(self, pieces: list[str]) -> dict[str, int]:
        """The numbers of pieces that are not remembered, once each; all at once, because one by one is slow."""
        flat: list[str] = []
        counts: list[int] = []
        specials = special_pieces()
        for piece in pieces:
            # A third is plain words, which need no call and no list of their own.
            if piece.isalpha() and piece.isascii() and piece not in specials:
                flat.append(piece)
                counts.append(1)
            else:
                words = split_piece(piece)
                flat += words
                counts.append(len(words))
        known = self._words
        new = [word for word in dict.fromkeys(flat) if word not in known]
        known.update(zip(new, range(len(known), len(known) + len(new)), strict=True))
        first = len(self._counts.values)
        self._starts.extend(len(self._cut.values) + np.cumsum([0, *counts[:-1]]))
        self._counts.extend(counts)
        self._marks.extend(marks_of_all(pieces))
        self._cut.extend(list(map(known.__getitem__, flat)))
        self._lengths.extend(list(map(len, new)))
        kinds, hashes = _described(new)
        self._kinds.extend(kinds)
        self._plain_hashes.extend(hashes)
        return dict(zip(pieces, range(first, first + len(pieces)), strict=True))

    def cut(self, numbers: NDArray[np.int64]) -> Cut:
        """The words of pieces."""
        counts = self._counts.values.take(numbers)
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        places = np.repeat(self._starts.values.take(numbers) - (ends - counts), counts)
        places += np.arange(total)
        return Cut(self._cut.values.take(places), counts, self._marks.values.take(numbers))

    def split(self, lines: Sequence[Sequence[str]]) -> tuple[Words, NDArray[np.int64]]:
        """The words of lines that are cut at white space already.

        Returns:
            The number of every word, and the number of words in each line.
        """
        cut = self.cut(self.numbers(list(chain.from_iterable(lines))))
        return cut.words, sums_of_runs(cut.counts, list(map(len, lines)))


class _Column(Generic[_Scalar]):
    """Values of one kind that grow at their end."""

    def __init__(self, kind: type[_Scalar]) -> None:
        self._room: NDArray[_Scalar] = np.zeros(4096, kind)
        self._count = 0

    @property
    def values(self) -> NDArray[_Scalar]:
        return self._room[: self._count]

    def extend(self, values: Sequence[int] | NDArray[Any]) -> None:
        end = self._count + len(values)
        if end > len(self._room):
            room: NDArray[_Scalar] = np.zeros(max(end, 2 * len(self._room)), self._room.dtype)
            room[: self._count] = self.values
            self._room = room
        self._room[self._count : end] = values
        self._count = end


def sums_of_runs(values: NDArray[Any], lengths: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Sums of consecutive runs of values that have these lengths, zero for empty ones."""
    counts = np.asarray(lengths, np.int64)
    filled = np.flatnonzero(counts)
    sums = np.zeros(len(counts), np.int64)
    if len(filled):
        # Adding up each run by itself is many times faster than running sums over all values.
        sums[filled] = np.add.reduceat(values.astype(np.int64, copy=False), (np.cumsum(counts) - counts)[filled])
    return sums


def plain_word(word: str) -> str:
    """A word as duplicates are compared: NFKC, lower case, letters, marks and digits only."""
    if word.isascii():
        return word.lower() if word.isalnum() else "".join(filter(str.isalnum, word)).lower()
    folded = word.lower()
    if not (unicodedata.is_normalized("NFKC", word) and unicodedata.is_normalized("NFKC", folded)):
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", word).lower())
    return folded if folded.isalpha() else "".join(sign for sign in folded if unicodedata.category(sign)[0] in "LMN")


def word_hash(word: str) -> int:
    """A stable 64-bit hash (XXH3), never zero."""
    return xxhash.xxh3_64_intdigest(word.encode("utf-8", "replace")) or 1


def _described(words: Sequence[str]) -> tuple[list[int], list[int]]:
    """The kinds and the hashes of words, which hold no white space.

    The plain forms of all words of ASCII come out of one pass over their bytes.
    """
    if not words:
        return [], []
    joined = "\n".join([word if word.isascii() else "" for word in words])
    plain_forms = joined.encode().translate(_LOWER, _SIGNS_OF_ASCII).split(b"\n")
    kinds: list[int] = []
    hashes: list[int] = []
    for word, plain in zip(words, plain_forms, strict=True):
        if plain:
            kinds.append(SPOKEN if plain.isdigit() else SPOKEN | ALPHABETIC | _STOP_NUMBERS.get(word, 0))
            hashes.append(xxhash.xxh3_64_intdigest(plain) or 1)
        else:
            other = "" if word.isascii() else plain_word(word)
            kinds.append(_kind(word))
            hashes.append(word_hash(other) if other else 0)
    return kinds, hashes


def _kind(word: str) -> int:
    if word.isascii():
        if word.isalpha():
            return SPOKEN | ALPHABETIC | _STOP_NUMBERS.get(word, 0)
        if len(word) == 1 and word in _ASCII_SIGNS:
            punctuation = PUNCTUATION if unicodedata.category(word)[0] == "P" else 0
            return punctuation | (FINAL if word in ".!?" else 0)
    alphabetic = any(map(str.isalpha, word))
    spoken = alphabetic or any(not _is_sign(sign) for sign in word)
    kind = (SPOKEN if spoken else 0) | (ALPHABETIC if alphabetic else 0)
    if word in FINAL_SIGNS:
        kind |= FINAL
    if not spoken and all(unicodedata.category(sign)[0] == "P" for sign in word):
        kind |= PUNCTUATION
    if UNSPACED_CHARACTER.fullmatch(word):
        kind |= UNSPACED_WORD
    return kind


def _is_sign(sign: str) -> bool:
    return sign in _ASCII_SIGNS or unicodedata.category(sign)[0] in "PC"


def n_gram_hashes(words: NDArray[np.uint64], size: int) -> NDArray[np.uint64]:
    """Hashes of all n-grams of word hashes, in order; empty where there are fewer words than ``size``."""
    count = len(words) - size + 1
    if count <= 0:
        return np.zeros(0, np.uint64)
    mixed = words[:count].copy()
    with np.errstate(over="ignore"):
        for offset in range(1, size):
            mixed *= _N_GRAM_FACTOR
            mixed += words[offset : offset + count]
        return mix(mixed)


_N_GRAM_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014): every input bit reaches every output bit."""
    with np.errstate(over="ignore"):
        mixed: NDArray[np.uint64] = values ^ (values >> np.uint64(30))
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(27)
        mixed *= np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return mixed


def plain_hashes_of(text: str, table: WordTable) -> NDArray[np.uint64]:
    """Hashes of the plain words of a text: what n-grams of duplicates and of evaluation items are made of."""
    return plain_hashes_of_all([text], table)[0]


def plain_hashes_of_all(texts: Sequence[str], table: WordTable) -> list[NDArray[np.uint64]]:
    """`plain_hashes_of` of each text; looking many up together costs a third."""
    words, counts = table.split([text.split() for text in texts])
    hashes = table.plain_hashes.take(words)
    worded = np.flatnonzero(hashes)
    ends = np.searchsorted(worded, np.cumsum(counts))
    return np.split(hashes.take(worded), ends[:-1])
