"""Splitting text into words, once for every rule and for MinHash.

The split follows the treatment of punctuation, numbers and contractions that English word tokenizers share (and that
the thresholds of the published rules were set with): punctuation at the edges of a word is split off sign by sign, some
signs inside a word split it, contractions are parted, web addresses stay whole. In scripts that are written without
spaces every character is a word.

Text is cut at white space first, and the words of each piece are remembered, so that a frequent word costs one
dictionary access.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# Han, kana, Thai, Lao, Tibetan, Burmese and Khmer letters: no spaces between words.
UNSPACED = (
    "\u0e00-\u0e7f\u0e80-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff"
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
)
# Vowel signs, tones and the like, which belong to the letter before them.
_MARKS = (
    "\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece\u0f18\u0f19\u0f35\u0f37\u0f39\u0f3e\u0f3f\u0f71-\u0f84"
    "\u0f86\u0f87\u0f8d-\u0fbc\u0fc6\u102b-\u103e\u1056-\u1059\u105e-\u1060\u1062-\u1064\u1067-\u106d\u1071-\u1074\u1082-\u108d"
    "\u108f\u109a-\u109d\u17b4-\u17d3\u17dd\u3099\u309a"
)
_UNSPACED_CHARACTER = re.compile(f"([{UNSPACED}][{_MARKS}]*)")

_SIGNS = "…,:;!?¿؟¡()\\[\\]{}<>_#*&。？！，、；：～·।،۔؛٪'\"”“`‘´’‚„»«「」『』（）〔〕【】《》〈〉"
_ICONS = "©®°¦§\u2190-\u2bff\ufffd\U0001f000-\U0001faff"
_PREFIX = re.compile(rf"\.\.+|[{_SIGNS}{_ICONS}%=—–$£€¥₹]|\+(?![0-9])")
_SUFFIX = re.compile(
    rf"(?:\.\.+|[{_SIGNS}{_ICONS}—–]|['’][sS]|(?<=[0-9])[+$£€¥₹%]|(?<=[0-9])(?:km|cm|mm|kg|mg|ms|kB|KB|MB|GB|TB|[mg])"
    rf"|(?<=[a-zß-öø-ÿ0-9%\-+)\]}}>\"'”’»])\.|(?<=[A-Z][A-Z])\.)$"
)
_INFIX = re.compile(
    rf"(\.\.+|…|[{_ICONS}]|(?<=[0-9])[+\-*^](?=[0-9-])|(?<=[a-z'\"])\.(?=[A-Z'\"])|(?<=[^\W\d_]),(?=[^\W\d_])"
    r"|(?<=[^\W_])(?:--+|[-–—~])(?=[^\W\d_])|(?<=[^\W_])[:<>=/](?=[^\W\d_]))"
)
_ADDRESS = re.compile(r"(?:[\w+.-]{2,}://|www\.)\S+|\S+@[\w-]+(?:\.[\w-]+)+|(?:[\w-]+\.)+[a-z]{2,}(?:[/?#]\S*)?")
_CONTRACTION = re.compile(r"(\w+)(n['’]t|['’](?:re|ve|ll|d|m|s))|(can)(not)", re.IGNORECASE)
_ABBREVIATIONS = frozenset(
    f"{name}."
    for name in (
        *(
            "e.g",
            "i.e",
            "vs",
            "cf",
            "a.m",
            "p.m",
            "Mr",
            "Mrs",
            "Ms",
            "Dr",
            "Prof",
            "St",
            "Jr",
            "Sr",
            "Inc",
            "Ltd",
            "Co",
        ),
        *("Corp", "Jan", "Feb", "Mar", "Apr", "Jun", "Jul", "Aug", "Sep", "Sept", "Oct", "Nov", "Dec"),
    )
)
_LONG_PIECE = 1000
"""Characters above which a piece without white space and unspaced letters is one word: no text, and the affix rules
would be slow on it."""

FINAL_SIGNS = frozenset("!.?։؟۔܀܁܂߹।॥၊။።፧፨᙮᜵᜶᠃᠉᥄᥅᪨᪩᪪᪫᭚᭛᭞᭟᰻᰼᱾᱿‼‽⁇⁈⁉⸮⸼꓿꘎꘏꛳꛷꡶꡷꣎꣏꤯꧈꧉꩝꩞꩟꫰꫱꯫﹒﹖﹗！．？｡。")
"""Signs that end a sentence."""

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
STOP_WORD_SHIFT = 8
"""The number of the stop word, counted from 1, in the bits from here on."""

Words = NDArray[np.int64]


class WordTable:
    """Words seen so far, with what is known of each: arrays that are indexed by word number.

    A word's number depends on what was seen before it; lengths, kinds and hashes do not. Numbers are valid until
    ``split`` is called again.

    Args:
        capacity: number of pieces, and of words, to remember; above it the table starts afresh, so that memory stays
            bounded.
    """

    def __init__(self, capacity: int = 400_000) -> None:
        self._capacity = capacity
        self._reset()

    def _reset(self) -> None:
        self._pieces: dict[str, tuple[int, ...]] = {}
        self._numbers: dict[str, int] = {}
        self._count = 0
        self.lengths: NDArray[np.int64] = np.zeros(4096, np.int64)
        self.kinds: NDArray[np.int64] = np.zeros(4096, np.int64)
        self.hashes: NDArray[np.uint64] = np.zeros(4096, np.uint64)
        self.plain_hashes: NDArray[np.uint64] = np.zeros(4096, np.uint64)

    def split(self, lines: Sequence[Sequence[str]]) -> tuple[Words, NDArray[np.int64]]:
        """The words of lines that are cut at white space already.

        Returns:
            The number of every word, and the number of words in each line.
        """
        # Long pieces are not remembered, but the words they hold are.
        if max(len(self._pieces), self._count) > self._capacity:
            self._reset()
        pieces = self._pieces
        numbers: list[int] = []
        words_per_line: list[int] = []
        for line in lines:
            before = len(numbers)
            for piece in line:
                found = pieces.get(piece)
                numbers.extend(self._add(piece) if found is None else found)
            words_per_line.append(len(numbers) - before)
        return np.array(numbers, np.int64), np.array(words_per_line, np.int64)

    def _add(self, piece: str) -> tuple[int, ...]:
        words = tuple(map(self._number, split_piece(piece)))
        if len(piece) <= 64:
            self._pieces[piece] = words
        return words

    def _number(self, word: str) -> int:
        number = self._numbers.get(word)
        if number is not None:
            return number
        number = self._count
        self._count += 1
        if number == len(self.lengths):
            for name in ("lengths", "kinds", "hashes", "plain_hashes"):
                array = getattr(self, name)
                setattr(self, name, np.concatenate([array, np.zeros_like(array)]))
        plain = plain_word(word)
        self.lengths[number] = len(word)
        self.kinds[number] = _kind(word)
        self.hashes[number] = word_hash(word)
        self.plain_hashes[number] = word_hash(plain) if plain else 0
        self._numbers[word] = number
        return number


def split_piece(piece: str) -> list[str]:
    """The words of a piece of text without white space, in order. No character is lost."""
    if piece.isalpha() and piece.isascii():
        return _contraction(piece)
    words: list[str] = []
    if _UNSPACED_CHARACTER.search(piece):
        for part in _UNSPACED_CHARACTER.split(piece):
            if part:
                words.extend([part] if _UNSPACED_CHARACTER.match(part) else _split_spaced(part))
        return words
    return _split_spaced(piece)


def _split_spaced(piece: str) -> list[str]:
    if len(piece) > _LONG_PIECE:
        return [piece]
    before: list[str] = []
    after: list[str] = []
    while piece and piece not in _ABBREVIATIONS:
        prefix = _PREFIX.match(piece)
        if prefix:
            before.append(prefix.group())
            piece = piece[prefix.end() :]
            continue
        suffix = _SUFFIX.search(piece)
        if suffix is None:
            break
        if _ADDRESS.fullmatch(piece) and piece[-1] not in ".,;:!?)'\"":
            break
        after.append(suffix.group())
        piece = piece[: suffix.start()]
    if piece:
        if piece in _ABBREVIATIONS or _ADDRESS.fullmatch(piece):
            before.append(piece)
        else:
            for part in _INFIX.split(piece):
                if part:
                    before.extend(_contraction(part))
    return before + after[::-1]


def _contraction(word: str) -> list[str]:
    found = _CONTRACTION.fullmatch(word)
    return [part for part in found.groups() if part] if found else [word]


def plain_word(word: str) -> str:
    """A word as duplicates are compared: NFKC, lower case, letters, marks and digits only."""
    if word.isascii():
        return "".join(filter(str.isalnum, word)).lower()
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", word).lower())
    return "".join(sign for sign in folded if unicodedata.category(sign)[0] in "LMN")


def word_hash(word: str) -> int:
    """A stable 64-bit hash, never zero."""
    return int.from_bytes(hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=8).digest(), "little") or 1


def _kind(word: str) -> int:
    spoken = any(not _is_punctuation(sign) for sign in word)
    kind = SPOKEN if spoken else 0
    if any(map(str.isalpha, word)):
        kind |= ALPHABETIC
    if word in FINAL_SIGNS:
        kind |= FINAL
    if all(unicodedata.category(sign)[0] == "P" for sign in word):
        kind |= PUNCTUATION
    if _UNSPACED_CHARACTER.fullmatch(word):
        kind |= UNSPACED_WORD
    if word in STOP_WORDS:
        kind |= (STOP_WORDS.index(word) + 1) << STOP_WORD_SHIFT
    return kind


def _is_punctuation(sign: str) -> bool:
    return unicodedata.category(sign)[0] in "PC" or sign in "`^~|=+<>"


def n_gram_hashes(words: NDArray[np.uint64], size: int) -> NDArray[np.uint64]:
    """Hashes of all n-grams of word hashes, in order; empty where there are fewer words than ``size``."""
    count = len(words) - size + 1
    if count <= 0:
        return np.zeros(0, np.uint64)
    mixed = np.zeros(count, np.uint64)
    with np.errstate(over="ignore"):
        for offset in range(size):
            mixed = mixed * N_GRAM_FACTOR + words[offset : offset + count]
        return mix(mixed)


N_GRAM_FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""Factor of the polynomial over word hashes that identifies an n-gram."""


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014): every input bit reaches every output bit."""
    mixed: NDArray[np.uint64]
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = values ^ (values >> np.uint64(31))
    return mixed


def plain_hashes_of(text: str, table: WordTable) -> NDArray[np.uint64]:
    """Hashes of the plain words of a text: what n-grams of duplicates and of evaluation items are made of."""
    words, _ = table.split([text.split()])
    hashes: NDArray[np.uint64] = table.plain_hashes[words]
    hashes = hashes[hashes != 0]
    return hashes
