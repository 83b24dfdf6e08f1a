"""Text features: one pass over the words, lines and paragraphs of documents, for every rule.

Blank lines never matter: lines are those that are not blank, paragraphs are runs of them, and lengths count the signs
of these lines with one break between two. No ratio has a zero below it, whatever the text.

Documents are measured many at a time, because sums over arrays cost little more for many than for one. What is measured
of a document does not depend on those beside it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marin.data.filtering.config import DUPLICATE_N_GRAMS, TOP_N_GRAMS
from marin.data.filtering.lines import Lines, cut_texts
from marin.data.filtering.marks import CITATION, CURLY, FILLER, OVERLONG, PERSONAL, POLICY, POLICY_PHRASES
from marin.data.filtering.ngrams import WordRuns, repetition
from marin.data.filtering.splitting import FINAL_SIGNS, UNSPACED_CHARACTER
from marin.data.filtering.words import (
    ALPHABETIC,
    FINAL,
    KINDS,
    PUNCTUATION,
    SPOKEN,
    STOP_WORD_SHIFT,
    UNSPACED_WORD,
    WordTable,
    sums_of_runs,
)

_BATCH_CHARACTERS = 1_000_000
"""Characters measured at once: enough to spread the cost of array operations and of looking words up."""
_BATCH_TEXTS = 512
_QUOTED_ENDS = frozenset(".?!\"'")
_CITATION = re.compile(r"\[(?:[0-9]{0,9}|edit|citation needed)\]")
_SHORT_LINE, _SHORT_LINE_UNSPACED = 30, 10
_WORDS_PER_LINE = 3
_IDEOGRAPHIC = re.compile(
    "[\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]"
)
_UNSIGNED = re.compile("[\u0e00-\u0eff]")
_SCRIPT_SAMPLE = 4000
"""Characters of a text that tell its script."""
_IDEOGRAPHIC_SCALE, _ALPHABETIC_SCALE = 2, 4
_PHRASE = 10
"""Fewest characters of a phrase of a script without spaces."""
_UNSPACED_SHARE = 0.3
"""Share of words that are characters of a script without spaces, from which the text counts as such."""

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Columns = dict[str, NDArray[Any]]

_ALL_KINDS = np.arange(KINDS)
_KIND_FLAGS = np.stack([(_ALL_KINDS & bit) != 0 for bit in (SPOKEN, ALPHABETIC, UNSPACED_WORD)], axis=1).astype(
    np.int64
)


@dataclass(frozen=True)
class TextFeatures:
    """What the rules are asked of. ``columns`` are flat and numeric; ``plain_words`` feed MinHash.

    Attributes:
        columns: values by column name, the same names for every text (see ``FEATURE_COLUMNS``).
        plain_words: hashes of the words that have a letter or a digit, in lower case and without signs.
        suspects: the lines that may hold personal data.
    """

    columns: dict[str, Any]
    plain_words: NDArray[np.uint64]
    suspects: str


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
    return measure_all([text], table)[0]


def measure_all(texts: Sequence[str], table: WordTable) -> list[TextFeatures]:
    """All features of each text."""
    found: list[TextFeatures] = []
    for batch in _batches(texts):
        found.extend(_measure_batch(batch, table))
    return found


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for text in texts:
        if batch and (characters + len(text) > _BATCH_CHARACTERS or len(batch) == _BATCH_TEXTS):
            yield batch
            batch, characters = [], 0
        batch.append(text)
        characters += len(text)
    if batch:
        yield batch


def _measure_batch(texts: Sequence[str], table: WordTable) -> list[TextFeatures]:
    lines, cut = cut_texts(texts, table)
    lengths, kinds = table.lengths.take(cut.words), table.kinds.take(cut.words)
    plain = table.plain_hashes.take(cut.words)
    words_per_text = lines.sums(lines.words)
    word_bounds = np.concatenate([[0], np.cumsum(words_per_text)])
    columns = _word_columns(lengths, kinds, words_per_text)
    unspaced = columns["unspaced"]
    scales, unsigned = _scripts(texts, unspaced)
    columns |= _line_columns(lines, unspaced, unsigned) | _repeat_columns(lines)
    columns |= _sentence_columns(lines, _line_sentences(lines, kinds, unsigned), unspaced, table)
    size, counted = np.maximum(1, columns["characters"]), np.maximum(1, words_per_text)
    repeats = repetition(WordRuns(cut.words, lengths, word_bounds), scales)
    columns |= {name: np.minimum(1.0, characters / size) for name, characters in repeats.items()}
    columns |= {
        "hashes_per_word": np.array([text.count("#") for text in texts]) / counted,
        "ellipses_per_word": np.array([_ellipses(text) for text in texts]) / counted,
        "line_breaks_per_word": np.maximum(0, lines.per_text - 1) / counted,
    }
    suspects = _texts_of_lines(lines, lines.marked(PERSONAL))
    rows = zip(*(columns[name].tolist() for name in FEATURE_COLUMNS), strict=True)
    found: list[TextFeatures] = []
    for at, row in enumerate(rows):
        hashes = plain[word_bounds[at] : word_bounds[at + 1]]
        of_text = dict(zip(FEATURE_COLUMNS, row, strict=True))
        found.append(TextFeatures(of_text, hashes.take(np.flatnonzero(hashes)), suspects.get(at, "")))
    return found


def _ellipses(text: str) -> int:
    return text.count("...") + (0 if text.isascii() else text.count("…"))


def _texts_of_lines(lines: Lines, chosen: Sequence[int]) -> dict[int, str]:
    """The chosen lines, joined for each text that has some."""
    by_text: dict[int, list[str]] = {}
    for owner, number in zip(np.searchsorted(lines.bounds, chosen, side="right").tolist(), chosen, strict=True):
        by_text.setdefault(owner - 1, []).append(lines.lines[number])
    return {owner: "\n".join(of_text) for owner, of_text in by_text.items()}


def _word_columns(lengths: Integers, kinds: Integers, words_per_text: Integers) -> Columns:
    """Columns that need words only."""
    texts = len(words_per_text)
    ends = np.cumsum(words_per_text).tolist()
    by_kind = np.zeros((texts, KINDS), np.int64)
    for text, (begin, end) in enumerate(itertools.pairwise([0, *ends])):
        by_kind[text] = np.bincount(kinds[begin:end], minlength=KINDS)
    spoken, alphabetic, unspaced = (by_kind @ _KIND_FLAGS).T
    stops = by_kind.reshape(texts, KINDS >> STOP_WORD_SHIFT, 1 << STOP_WORD_SHIFT).sum(axis=2)[:, 1:]
    counted = np.maximum(1, words_per_text)
    spoken_characters = sums_of_runs(lengths * (kinds & SPOKEN), words_per_text)
    return {
        "words": words_per_text,
        "spoken_words": spoken,
        "unspaced": unspaced / counted > _UNSPACED_SHARE,
        "mean_word_length": spoken_characters / np.maximum(1, spoken),
        "alphabetic_words": alphabetic / counted,
        "stop_words": (stops > 0).sum(axis=1),
        "stop_word_share": stops.sum(axis=1) / counted,
    }


def _scripts(texts: Sequence[str], unspaced: Flags) -> tuple[Integers, Flags]:
    """Characters that stand for a word in each text, and whether its script does without signs at the end of sentences.

    A Chinese or Japanese word has about two characters, one of the scripts of South-East Asia three or four. Thai and
    Lao put a space where other scripts put a full stop.
    """
    scales = np.ones(len(texts), np.int64)
    unsigned = np.zeros(len(texts), np.bool_)
    for at in np.flatnonzero(unspaced).tolist():
        sample = texts[at][:_SCRIPT_SAMPLE]
        all_unspaced = len(UNSPACED_CHARACTER.findall(sample))
        ideographic = 2 * len(_IDEOGRAPHIC.findall(sample)) >= all_unspaced
        scales[at] = _IDEOGRAPHIC_SCALE if ideographic else _ALPHABETIC_SCALE
        unsigned[at] = 2 * len(_UNSIGNED.findall(sample)) >= all_unspaced > 0
    return scales, unsigned


def _line_columns(lines: Lines, unspaced: Flags, unsigned: Flags) -> Columns:
    """Columns that need single lines only."""
    count = np.maximum(1, lines.per_text)
    terminal = _flags([line[-1] in FINAL_SIGNS for line in lines.lines])
    # Without signs, a line that is long enough for a sentence counts as ended.
    terminal |= np.repeat(unsigned, lines.per_text) & (lines.words >= _PHRASE)
    short = np.repeat(np.where(unspaced, _SHORT_LINE_UNSPACED, _SHORT_LINE), lines.per_text)
    return {
        "characters": lines.sums(lines.sizes) + np.maximum(0, lines.per_text - 1),
        "lines": lines.per_text,
        "bullet_lines": lines.sums(_flags([line[0] in "•-" for line in lines.lines])) / count,
        "ellipsis_lines": lines.sums(_flags([line.endswith(("...", "…")) for line in lines.lines])) / count,
        "terminal_lines": lines.sums(terminal) / count,
        "short_lines": lines.sums(lines.sizes <= short) / count,
    }


def _flags(values: list[bool]) -> Flags:
    return np.array(values, np.bool_)


def _repeat_columns(lines: Lines) -> Columns:
    """Columns of lines and paragraphs that occurred before in their text."""
    found = np.zeros((len(lines.paragraphs), 4), np.int64)
    for at, starts in enumerate(lines.paragraphs):
        begin, end = lines.bounds[at], lines.bounds[at + 1]
        of_text = lines.lines[begin:end]
        # Without a repeated line there is no repeated paragraph.
        if len(set(of_text)) == len(of_text):
            continue
        sizes = lines.sizes[begin:end].tolist()
        found[at, :2] = found[at, 2:] = _repeats(of_text, sizes)
        if len(starts) < len(of_text):
            spans = list(zip(starts, [*starts[1:], len(of_text)], strict=True))
            found[at, 2:] = _repeats(
                [tuple(of_text[first:last]) for first, last in spans],
                [sum(sizes[first:last]) + last - first - 1 for first, last in spans],
            )
    count = np.maximum(1, lines.per_text)
    paragraphs = np.maximum(1, np.array(list(map(len, lines.paragraphs)), np.int64))
    size = np.maximum(1, lines.sums(lines.sizes) + lines.per_text - 1)
    return {
        "duplicate_lines": found[:, 0] / count,
        "duplicate_line_characters": found[:, 1] / size,
        "duplicate_paragraphs": found[:, 2] / paragraphs,
        "duplicate_paragraph_characters": found[:, 3] / size,
    }


def _repeats(items: Sequence[Any], sizes: Sequence[int]) -> tuple[int, int]:
    """Number and characters of the items that occurred before."""
    seen: set[Any] = set()
    repeats = characters = 0
    for item, size in zip(items, sizes, strict=True):
        if item in seen:
            repeats += 1
            characters += size
        else:
            seen.add(item)
    return repeats, characters


def _sentence_columns(lines: Lines, sentences: Integers, unspaced: Flags, table: WordTable) -> Columns:
    """Columns of the lines that C4 keeps but for their end: worded ones that no policy or script is mentioned in.

    Words are what stands between spaces, in scripts without spaces its words.
    """
    by_words = np.repeat(unspaced, lines.per_text)
    worded = np.where(by_words, lines.words, lines.pieces) >= _WORDS_PER_LINE
    worded &= by_words | (lines.marks & OVERLONG == 0)
    counted = worded.copy()
    for at in lines.marked(POLICY):
        lowered = lines.lines[at].lower()
        counted[at] &= not any(phrase in lowered for phrase in POLICY_PHRASES)
    # C4 takes citation marks out before it counts sentences.
    cleaned: dict[int, str] = {}
    for at in lines.marked(CITATION):
        line, found = _CITATION.subn("", lines.lines[at])
        if found:
            cleaned[at] = line
    if cleaned:
        words, per_line = table.split([line.split() for line in cleaned.values()])
        sentences[list(cleaned)] = _sentences(table.kinds[words], per_line)
    terminal = _flags([line[-1] in _QUOTED_ENDS and not line.endswith("...") for line in lines.lines])
    filler = np.zeros(len(worded), np.bool_)
    filler[[at for at in lines.marked(FILLER) if worded[at] and "lorem ipsum" in lines.lines[at].lower()]] = True
    curly = np.zeros(len(worded), np.bool_)
    curly[[at for at in lines.marked(CURLY) if worded[at]]] = True
    return {
        "sentences": lines.sums(sentences * counted),
        "terminal_sentences": lines.sums(sentences * (counted & terminal)),
        "lorem_ipsum": lines.sums(filler) > 0,
        "curly_bracket": lines.sums(curly) > 0,
    }


def _line_sentences(lines: Lines, kinds: Integers, unsigned: Flags) -> Integers:
    """Sentences in each line; in scripts without signs for their end, phrases between spaces that are long enough."""
    sentences = _sentences(kinds, lines.words)
    for at in np.flatnonzero(np.repeat(unsigned, lines.per_text)).tolist():
        phrases = (len(UNSPACED_CHARACTER.findall(piece)) for piece in lines.lines[at].split())
        sentences[at] = max(sentences[at], sum(length >= _PHRASE for length in phrases))
    return sentences


def _sentences(kinds: Integers, words_per_line: Integers) -> Integers:
    """Sentences in each line: one, and one more wherever words follow a sign that ends a sentence."""
    worded = np.flatnonzero((kinds & PUNCTUATION) == 0)
    finals = np.flatnonzero(kinds & FINAL)
    following = np.searchsorted(worded, finals)
    there = following < len(worded)
    ends = np.cumsum(words_per_line)
    line_of_final = np.searchsorted(ends, finals[there], side="right")
    begins = worded[following[there]]
    same_line = begins < ends[line_of_final]
    # Several signs before the same word begin one sentence.
    begins, at = np.unique(begins[same_line], return_index=True)
    return 1 + np.bincount(line_of_final[same_line][at], minlength=len(words_per_line))
