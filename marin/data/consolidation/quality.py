"""A quality score from the signals, and buckets of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from marin.data.consolidation.config import QualityConfig

SCORE_COLUMNS = (
    "terminal_lines",
    "stop_word_share",
    "alphabetic_words",
    "characters",
    "lines",
    "duplicate_5_grams",
    "unspaced",
)
"""Signal columns that the score reads."""

_PROSE_LINE = 120
"""Mean characters of a line from which a text counts as running prose."""
_PROSE_STOP_WORDS = 0.15
"""Share of Gopher's eight stop words in English prose."""


def score(row: Mapping[str, Any]) -> float:
    """A score between 0 and 1: how much a text looks like running prose.

    0.35 x lines that end with a sentence's end
    + 0.25 x mean length of a line, full marks from 120 characters (40 in scripts without spaces)
    + 0.20 x share of stop words, full marks from 15 % (scripts without spaces get half of it)
    + 0.20 x words with letters
    - 0.50 x characters in repeated 5-grams, and never below 0.

    These are the signals that tell prose from lists, navigation, tables and boilerplate in Gopher's, C4's and FineWeb's
    rules; the weights are round numbers, set by hand. A trained classifier takes its place by writing another column.
    """
    line_length = row["characters"] / max(1, row["lines"])
    prose_line = _PROSE_LINE / 3 if row["unspaced"] else _PROSE_LINE
    stop_words = 0.5 if row["unspaced"] else min(1.0, row["stop_word_share"] / _PROSE_STOP_WORDS)
    value = (
        0.35 * row["terminal_lines"]
        + 0.25 * min(1.0, line_length / prose_line)
        + 0.20 * stop_words
        + 0.20 * row["alphabetic_words"]
        - 0.50 * row["duplicate_5_grams"]
    )
    return float(min(1.0, max(0.0, value)))


def assign_buckets(
    scores: Sequence[float], ids: Sequence[str], sources: Sequence[str], config: QualityConfig
) -> list[int]:
    """The quality bucket of every document: equal numbers in each, the highest scores in the last."""
    groups: dict[str, list[int]] = {}
    for at, source in enumerate(sources):
        groups.setdefault(source if config.scope == "source" else "", []).append(at)
    buckets = [0] * len(scores)
    for members in groups.values():
        members.sort(key=lambda at: (scores[at], ids[at]))
        for rank, at in enumerate(members):
            buckets[at] = rank * config.buckets // len(members)
    return buckets
