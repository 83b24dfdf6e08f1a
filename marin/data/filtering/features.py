"""Text features: one pass over the words, lines and paragraphs of a document, for every rule.

Blank lines never matter: lines are those that are not blank, paragraphs are runs of them, and lengths count the signs
of these lines with one break between two. No ratio has a zero below it, whatever the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marin.data.filtering.config import DUPLICATE_N_GRAMS, TOP_N_GRAMS
from marin.data.filtering.words import (
    ALPHABETIC,
    FINAL,
    FINAL_SIGNS,
    N_GRAM_FACTOR,
    PUNCTUATION,
    SPOKEN,
    STOP_WORD_SHIFT,
    UNSPACED_WORD,
    WordTable,
)

_FINAL_SIGNS = tuple(FINAL_SIGNS)
_QUOTED_ENDS = (".", "?", "!", '"', "'")
_POLICY = re.compile("terms of use|privacy policy|cookie policy|uses cookies|use of cookies|use cookies|javascript")
_SHORT_LINE, _SHORT_LINE_UNSPACED = 30, 10
_LONGEST_WORD = 1000
_WORDS_PER_LINE = 3
_UNSPACED_SHARE = 0.3
"""Share of words that are characters of a script without spaces, from which the text counts as such."""


@dataclass(frozen=True)
class TextFeatures:
    """What the rules are asked of. ``columns`` are flat and numeric; ``plain_words`` feed MinHash.

    Attributes:
        columns: values by column name, the same names for every text (see ``FEATURE_COLUMNS``).
        plain_words: hashes of the words that have a letter or a digit, in lower case and without signs.
    """

    columns: dict[str, Any]
    plain_words: NDArray[np.uint64]


FEATURE_COLUMNS: dict[str, type] = {
    "characters": int,
    "lines": int,
    "words": int,
    "spoken_words": int,
    "unspaced": bool,
    "mean_word_length": float,
    "hashes_per_word": float,
    "ellipses_per_word": float,
    "bullet_lines": float,
    "ellipsis_lines": float,
    "alphabetic_words": float,
    "stop_words": int,
    "stop_word_share": float,
    "duplicate_lines": float,
    "duplicate_paragraphs": float,
    "duplicate_line_characters": float,
    "duplicate_paragraph_characters": float,
    **{f"top_{size}_gram": float for size in TOP_N_GRAMS},
    **{f"duplicate_{size}_grams": float for size in DUPLICATE_N_GRAMS},
    "terminal_lines": float,
    "short_lines": float,
    "line_breaks_per_word": float,
    "sentences": int,
    "terminal_sentences": int,
    "lorem_ipsum": bool,
    "curly_bracket": bool,
}
"""Feature columns and their types. Shares lie between 0 and 1 and belong to lines, words or characters as named."""


def measure(text: str, table: WordTable) -> TextFeatures:
    """All features of a text. Never raises; a text without words has zeros."""
    paragraphs = _paragraphs(text)
    lines = [line for paragraph in paragraphs for line in paragraph]
    pieces = [line.split() for line in lines]
    words, words_per_line = table.split(pieces)
    lengths, kinds = table.lengths[words], table.kinds[words]
    spoken = (kinds & SPOKEN) != 0
    characters = sum(map(len, lines)) + max(0, len(lines) - 1)
    unspaced = _mean((kinds & UNSPACED_WORD) != 0) > _UNSPACED_SHARE
    stop_numbers = kinds >> STOP_WORD_SHIFT
    duplicate_lines, duplicate_line_characters = _repeats(lines)
    blocks = ["\n".join(paragraph) for paragraph in paragraphs]
    duplicate_paragraphs, duplicate_paragraph_characters = _repeats(blocks)
    word_count, line_count = max(1, len(words)), max(1, len(lines))
    size = max(1, characters)
    countable, terminal = _countable_lines(lines, pieces, words_per_line if unspaced else None)
    sentences = _sentences(kinds, words_per_line)
    lowered = text.lower() if "orem" in text or "OREM" in text else ""
    columns: dict[str, Any] = {
        "characters": characters,
        "lines": len(lines),
        "words": len(words),
        "spoken_words": int(spoken.sum()),
        "unspaced": bool(unspaced),
        "mean_word_length": _mean(lengths[spoken]),
        "hashes_per_word": text.count("#") / word_count,
        "ellipses_per_word": (text.count("...") + text.count("…")) / word_count,
        "bullet_lines": sum(line.startswith(("•", "-")) for line in lines) / line_count,
        "ellipsis_lines": sum(line.endswith(("...", "…")) for line in lines) / line_count,
        "alphabetic_words": _mean((kinds & ALPHABETIC) != 0),
        "stop_words": len(np.unique(stop_numbers[stop_numbers != 0])),
        "stop_word_share": _mean(stop_numbers != 0),
        "duplicate_lines": duplicate_lines / line_count,
        "duplicate_paragraphs": duplicate_paragraphs / max(1, len(blocks)),
        "duplicate_line_characters": duplicate_line_characters / size,
        "duplicate_paragraph_characters": duplicate_paragraph_characters / size,
        "terminal_lines": sum(line.endswith(_FINAL_SIGNS) for line in lines) / line_count,
        "short_lines": sum(len(line) <= (_SHORT_LINE_UNSPACED if unspaced else _SHORT_LINE) for line in lines)
        / line_count,
        "line_breaks_per_word": max(0, len(lines) - 1) / word_count,
        "sentences": int(sentences[countable].sum()),
        "terminal_sentences": int(sentences[countable & terminal].sum()),
        "lorem_ipsum": "lorem ipsum" in lowered,
        "curly_bracket": "{" in text,
    }
    columns |= _n_gram_shares(table.hashes[words], lengths, size, joint=0 if unspaced else 1)
    plain = table.plain_hashes[words]
    return TextFeatures(columns=columns, plain_words=plain[plain != 0])


def _mean(values: NDArray[Any]) -> float:
    return float(values.mean()) if len(values) else 0.0


def _paragraphs(text: str) -> list[list[str]]:
    """Stripped lines in runs that blank lines part."""
    paragraphs: list[list[str]] = []
    begin = True
    for raw in text.splitlines():
        line = raw.strip()
        if not line:
            begin = True
            continue
        if begin:
            paragraphs.append([])
            begin = False
        paragraphs[-1].append(line)
    return paragraphs


def _repeats(items: Sequence[str]) -> tuple[int, int]:
    """Number and characters of the items that occurred before."""
    seen: set[str] = set()
    repeats = characters = 0
    for item in items:
        if item in seen:
            repeats += 1
            characters += len(item)
        else:
            seen.add(item)
    return repeats, characters


def _countable_lines(
    lines: Sequence[str], pieces: Sequence[Sequence[str]], words_per_line: NDArray[np.int64] | None
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """The lines that C4 would keep but for their end, and those that end as C4 wants.

    Words are what stands between spaces, unless ``words_per_line`` says how many there are in a script without spaces.
    """
    countable = [
        (len(line_pieces) if words_per_line is None else words_per_line[at]) >= _WORDS_PER_LINE
        and (words_per_line is not None or len(line) <= _LONGEST_WORD or max(map(len, line_pieces)) <= _LONGEST_WORD)
        and not _POLICY.search(line.lower())
        for at, (line, line_pieces) in enumerate(zip(lines, pieces, strict=True))
    ]
    terminal = [line.endswith(_QUOTED_ENDS) and not line.endswith("...") for line in lines]
    return np.array(countable, bool), np.array(terminal, bool)


def _sentences(kinds: NDArray[np.int64], words_per_line: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sentences in each line: one, and one more wherever words follow a sign that ends a sentence."""
    if not len(kinds):
        return np.zeros(len(words_per_line), np.int64)
    line_of = np.repeat(np.arange(len(words_per_line)), words_per_line)
    ends = np.cumsum((kinds & FINAL) != 0)
    worded = np.flatnonzero((kinds & PUNCTUATION) == 0)
    begins = (np.diff(ends[worded]) > 0) & (np.diff(line_of[worded]) == 0)
    return 1 + np.bincount(line_of[worded[1:][begins]], minlength=len(words_per_line))


def _n_gram_shares(
    hashes: NDArray[np.uint64], lengths: NDArray[np.int64], size: int, *, joint: int
) -> dict[str, float]:
    """Share of characters in the most frequent short n-gram, and in repeated long ones, for each size.

    Characters of the most frequent n-gram count the spaces between its words (``joint`` each), those of repeated
    n-grams do not, as in the rules' reference implementation.

    An n-gram can only be repeated where a shorter one is, so each size looks only at what the size before left.
    """
    shares = dict.fromkeys(
        [*(f"top_{n}_gram" for n in TOP_N_GRAMS), *(f"duplicate_{n}_grams" for n in DUPLICATE_N_GRAMS)], 0.0
    )
    totals = np.concatenate([[0], np.cumsum(lengths)])
    places = np.arange(len(hashes))
    grams = hashes
    for n in range(2, max(TOP_N_GRAMS + DUPLICATE_N_GRAMS) + 1):
        inside = places + n <= len(hashes)
        places, grams = places[inside], grams[inside]
        with np.errstate(over="ignore"):
            grams = grams * N_GRAM_FACTOR + hashes[places + n - 1]
        _, first, numbers, counts = np.unique(grams, return_index=True, return_inverse=True, return_counts=True)
        if n in TOP_N_GRAMS and len(hashes) >= n:
            characters = _top_characters(places[first], counts, totals, n, joint)
            shares[f"top_{n}_gram"] = min(1.0, characters / size)
        repeated = counts[numbers] > 1
        if not repeated.any():
            places, grams = places[:0], grams[:0]
            continue
        if n in DUPLICATE_N_GRAMS:
            characters = _repeated_characters(places, places[first][numbers], numbers, totals, n)
            shares[f"duplicate_{n}_grams"] = min(1.0, characters / size)
        places, grams = places[repeated], grams[repeated]
    return shares


def _top_characters(
    first: NDArray[np.int64], counts: NDArray[np.int64], totals: NDArray[np.int64], n: int, joint: int
) -> int:
    """Characters of all occurrences of the most frequent n-gram; of equally frequent ones the first in the text."""
    most = int(counts.max(initial=1))
    start = int(first[counts == most].min()) if most > 1 else 0
    return most * int(totals[start + n] - totals[start] + joint * (n - 1))


def _repeated_characters(
    places: NDArray[np.int64], first: NDArray[np.int64], numbers: NDArray[np.int64], totals: NDArray[np.int64], n: int
) -> int:
    """Characters of n-grams that occurred before, read from the left, where a repeated one is stepped over whole.

    What is stepped over does not count as having occurred.

    Args:
        places: where the n-grams begin, in ascending order.
        first: for each of them, where the same n-gram begins first.
        numbers: for each of them, a number that equal n-grams share.
        totals: characters before each word.
        n: words in an n-gram.
    """
    again = places > first
    stepped_over: set[int] = set()
    occurred_later: set[int] = set()
    characters = resume = 0
    for place, earliest, number in zip(
        places[again].tolist(), first[again].tolist(), numbers[again].tolist(), strict=True
    ):
        if place < resume:
            continue
        if earliest not in stepped_over or number in occurred_later:
            characters += int(totals[place + n] - totals[place])
            resume = place + n
            stepped_over.update(range(place + 1, resume))
        else:
            occurred_later.add(number)
    return characters
