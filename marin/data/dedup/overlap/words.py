"""Words as training text and evaluation items are compared, and where they stand in a text.

What differs between two copies of one passage must not hide that they are copies: letter case, punctuation, white
space, Unicode forms, invisible characters, HTML entities and simple tags that an extraction left behind. So a word is a
run of letters, marks and digits of the text in NFKC and full case folding (the Unicode Standard, section 3.13), after
entities are resolved. An apostrophe inside a word is nothing (``don't`` is ``dont``), nor is a comma between groups of
three digits. In scripts that are written without spaces every character is a word.
"""

from __future__ import annotations

import html
import re
import string
import unicodedata
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import regex
from numpy.typing import NDArray

from marin.data.filtering.splitting import UNSPACED, UNSPACED_CHARACTER
from marin.data.filtering.words import sums_of_runs, word_hash

CHUNK = 1 << 20
"""Characters of a text that are cut into words at once, which bounds the memory of a very long one."""

_REMEMBERED = 64
"""Characters of the longest piece that is remembered."""
_TAG = re.compile(
    r"</?(?:b|i|u|s|q|p|em|br|hr|tt|sub|sup|code|span|small|big|strong|font|div|li|ul|ol|td|tr|th)(?:\s[^<>=]{1,40}=[^<>]{0,200})?\s?/?>",
    re.IGNORECASE,
)
_APOSTROPHES = dict.fromkeys(map(ord, "\u2019\u2018\u201b\u02bc\u02b9\u2032\u00b4\uff07"), "'")
_SIGNS_AROUND = string.punctuation + "“”‘’«»…—–"
_ASCII_WORD = re.compile(r"[a-z0-9]+(?:(?:'|(?<=[0-9]),(?=[0-9]{3}(?![0-9])))[a-z0-9]+)*")
_SPACED = rf"(?:(?![{UNSPACED}])[\p{{L}}\p{{M}}\p{{N}}])+"
_WORD = regex.compile(rf"[{UNSPACED}]\p{{M}}*|{_SPACED}(?:(?:'|(?<=\p{{Nd}}),(?=\p{{Nd}}{{3}}(?!\p{{Nd}}))){_SPACED})*")
_PIECE = re.compile(r"\S+")
_UNIT = regex.compile(r"&#?\w{1,32};?|\X|.", regex.DOTALL)
"""What is folded on its own when a word's place is looked for: an entity, or a character with its marks."""


_LETTER, _UNSPACED = 1, 2
"""Bits of a word's kind."""


@dataclass(frozen=True)
class Words:
    """The words of some texts behind one another.

    Attributes:
        hashes: hash of each word.
        letters: whether it holds a letter.
        unspaced: whether it is a character of a script without spaces.
        counts: words of each text.
    """

    hashes: NDArray[np.uint64]
    letters: NDArray[np.bool_]
    unspaced: NDArray[np.bool_]
    counts: NDArray[np.int64]


class WordReader:
    """Cuts texts into words. The words of pieces between white space are remembered, because most recur.

    Args:
        capacity: pieces, and words, to remember; above it the memory starts afresh.
    """

    def __init__(self, capacity: int = 400_000) -> None:
        self._capacity = capacity
        self._reset()

    def _reset(self) -> None:
        self._numbers: dict[str, int] = {}
        # Words of all pieces behind one another; where those of each piece begin, and how many they are.
        self._hashes = array("Q")
        self._kinds = array("B")
        self._starts = array("q")
        self._counts = array("q")

    def read(self, texts: Sequence[str]) -> Words:
        """The words of texts. A long one is taken in parts, so that its pieces never lie in memory all at once."""
        counts = np.zeros(len(texts), np.int64)
        hashes: list[NDArray[np.uint64]] = [np.zeros(0, np.uint64)]
        kinds: list[NDArray[np.uint8]] = [np.zeros(0, np.uint8)]
        pieces: list[str] = []
        owners: list[int] = []
        sizes: list[int] = []
        waiting = 0

        def finish() -> None:
            nonlocal pieces, owners, sizes, waiting
            numbers = self._numbers_of(pieces)
            words = np.frombuffer(self._counts, np.int64)[numbers] if len(numbers) else np.zeros(0, np.int64)
            np.add.at(counts, owners, sums_of_runs(words, sizes))
            places = self._places(numbers, words)
            if len(places):
                hashes.append(np.frombuffer(self._hashes, np.uint64)[places])
                kinds.append(np.frombuffer(self._kinds, np.uint8)[places])
            pieces, owners, sizes, waiting = [], [], [], 0

        for owner, text in enumerate(texts):
            for chunk in chunks_of(without_tags(text)):
                if waiting and waiting + len(chunk) > CHUNK:
                    finish()
                found = chunk.split()
                pieces.extend(found)
                owners.append(owner)
                sizes.append(len(found))
                waiting += len(chunk)
        if owners:
            finish()
        kind = np.concatenate(kinds)
        return Words(np.concatenate(hashes), (kind & _LETTER) != 0, (kind & _UNSPACED) != 0, counts)

    def counts(self, pieces: list[str]) -> NDArray[np.int64]:
        """How many words each of some pieces between white space has."""
        numbers = self._numbers_of(pieces)
        return np.frombuffer(self._counts, np.int64)[numbers] if len(numbers) else np.zeros(0, np.int64)

    def _places(self, numbers: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where the words of pieces lie, those of all pieces in order."""
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        if not total:
            return np.zeros(0, np.int64)
        places: NDArray[np.int64] = np.repeat(np.frombuffer(self._starts, np.int64)[numbers] - (ends - counts), counts)
        places += np.arange(total)
        return places

    def _numbers_of(self, pieces: list[str]) -> NDArray[np.int64]:
        if max(len(self._counts), len(self._hashes)) > self._capacity:
            self._reset()
        found = np.fromiter(map(self._numbers.get, pieces, repeat(-1)), np.int64, len(pieces))
        missing = np.flatnonzero(found < 0).tolist()
        added: dict[str, int] = {}
        for place in missing:
            piece = pieces[place]
            number = added.get(piece)
            if number is None:
                added[piece] = number = self._add(piece)
            found[place] = number
        # A long piece hardly recurs, and would fill the memory.
        self._numbers.update((piece, number) for piece, number in added.items() if len(piece) <= _REMEMBERED)
        return found

    def _add(self, piece: str) -> int:
        words = plain_words(piece)
        self._starts.append(len(self._hashes))
        self._counts.append(len(words))
        self._hashes.extend(map(word_hash, words))
        self._kinds.extend(map(_kind, words))
        return len(self._counts) - 1


def _kind(word: str) -> int:
    if word.isascii():
        return 0 if word.isdigit() else _LETTER
    letter = _LETTER if any(map(str.isalpha, word)) else 0
    return letter | _UNSPACED if UNSPACED_CHARACTER.match(word) else letter


def without_tags(text: str) -> str:
    """A text of the same length with blanks in place of simple HTML tags."""
    return _TAG.sub(lambda found: " " * len(found.group()), text) if "<" in text else text


def chunks_of(text: str, size: int = CHUNK) -> Iterator[str]:
    """A text in parts that end at white space, or after ``size`` characters where there is none."""
    start = 0
    while len(text) - start > size:
        end = start + size
        while end > start and not text[end - 1].isspace():
            end -= 1
        end = end if end > start else start + size
        yield text[start:end]
        start = end
    yield text[start:] if start else text


def plain_words(piece: str) -> list[str]:
    """The words of a piece of text, in the form in which they are compared."""
    # One plain word with signs around it, as nearly all are: the long way comes to the same.
    core = piece.strip(_SIGNS_AROUND)
    if core.isascii() and core.isalnum() and "&" not in piece:
        return [core.lower()]
    return [plain for _, _, plain in _spans(fold(piece))]


def fold(piece: str) -> str:
    """Entities resolved, NFKC, case folded, invisible characters taken out, apostrophes made one sign."""
    if "&" in piece:
        # Twice: pages that were escaped two times say &amp;quot;.
        piece = without_tags(html.unescape(html.unescape(piece)))
    if piece.isascii():
        return piece.lower()
    piece = unicodedata.normalize("NFKC", piece.translate(_APOSTROPHES))
    piece = unicodedata.normalize("NFKC", piece.casefold())
    if not piece.isascii() and any(unicodedata.category(sign) == "Cf" for sign in piece):
        piece = "".join(sign for sign in piece if unicodedata.category(sign) != "Cf")
    return piece


def _spans(folded: str) -> Iterator[tuple[int, int, str]]:
    """Begin, end and plain form of each word of a folded text."""
    pattern = _ASCII_WORD if folded.isascii() else _WORD
    for found in pattern.finditer(folded):
        word = found.group()
        yield found.start(), found.end(), word.replace("'", "").replace(",", "")


def word_places(
    text: str, wanted: Sequence[int] | NDArray[np.int64], reader: WordReader
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where some words of a text begin and end, in characters; they are given by their numbers in it, ascending.

    A place is exact but in a piece that only folds as a whole (such as half-width kana with their voicing marks): its
    words are all said to cover it.
    """
    numbers = np.asarray(wanted, np.int64)
    starts, ends = array("q"), array("q")
    characters = words = 0
    for chunk in chunks_of(without_tags(text)):
        pieces = chunk.split()
        totals = np.cumsum(reader.counts(pieces))
        count = int(totals[-1]) if len(totals) else 0
        first, last = np.searchsorted(numbers, [words, words + count]).tolist()
        if first < last:
            begins = [found.start() for found in _PIECE.finditer(chunk)]
            for number in (numbers[first:last] - words).tolist():
                piece = int(np.searchsorted(totals, number, side="right"))
                before = int(totals[piece - 1]) if piece else 0
                begin, end = _places_in(pieces[piece])[number - before]
                starts.append(characters + begins[piece] + begin)
                ends.append(characters + begins[piece] + end)
        characters += len(chunk)
        words += count
    return np.array(starts, np.int64), np.array(ends, np.int64)


def _places_in(piece: str) -> list[tuple[int, int]]:
    if piece.isascii() and "&" not in piece:
        return [(begin, end) for begin, end, _ in _spans(piece.lower())]
    whole = fold(piece)
    begins: list[int] = []
    ends: list[int] = []
    parts: list[str] = []
    for unit in _UNIT.finditer(piece):
        part = fold(unit.group())
        parts.append(part)
        begins.extend([unit.start()] * len(part))
        ends.extend([unit.end()] * len(part))
    if "".join(parts) != whole:
        return [(0, len(piece))] * sum(1 for _ in _spans(whole))
    return [(begins[begin], ends[end - 1]) for begin, end, _ in _spans(whole)]
