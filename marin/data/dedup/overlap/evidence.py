"""What the hits of a shard say: documents, evaluation items, stretches of text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marin.data.dedup.overlap.index import Owners

EXAMPLES = 20
"""Examples of each evaluation set in the report."""

Span = tuple[int, int]
"""First and last word of a stretch of text."""


@dataclass(frozen=True)
class Overlap:
    """What one document shares with evaluation items.

    Attributes:
        row: the document's row in its shard.
        sets: numbers of the evaluation sets.
        items: numbers of the items, ascending.
        grams: distinct n-grams of each item that the document has.
        spans: the stretches that are shared.
    """

    row: int
    sets: NDArray[np.int32]
    items: NDArray[np.int32]
    grams: NDArray[np.int64]
    spans: list[Span]


@dataclass(frozen=True)
class Example:
    """An item that a document shares much of.

    Attributes:
        row: the document's row in its shard.
        item: number of the item.
        grams: distinct n-grams of the item that the document has.
        span: the longest stretch of it in the document.
    """

    row: int
    item: int
    grams: int
    span: Span


class Evidence:
    """The hits of a shard that are evidence: those whose n-gram is not common.

    Attributes:
        owners: the items of each n-gram.
        rows: row of each hit, ascending.
        places: its first word.
        grams: its n-gram.
    """

    def __init__(self, owners: Owners, hits: dict[str, NDArray[Any]], common: list[NDArray[np.int64]]) -> None:
        keep = ~np.isin(hits["grams"], np.concatenate(common)) if common else np.ones(len(hits["grams"]), np.bool_)
        self.owners = owners
        self.rows: NDArray[np.int64] = hits["rows"][keep]
        self.places: NDArray[np.int64] = hits["places"][keep]
        self.grams: NDArray[np.int64] = hits["grams"][keep]

    def overlaps(self, minimum: int) -> Iterator[Overlap]:
        """Each row that shares at least so many distinct n-grams with one evaluation set."""
        for row in np.unique(self.rows).tolist():
            places, grams = self._of_row(row)
            distinct, at = np.unique(grams, return_inverse=True)
            items, gram_of = self.owners.of_grams(distinct)
            sets = self.owners.sets[items]
            # An n-gram counts once for a set, however many items of the set have it.
            of_set = np.unique(np.stack([sets.astype(np.int64), gram_of], axis=1), axis=0)[:, 0]
            numbers, counts = np.unique(of_set, return_counts=True)
            kept = numbers[counts >= minimum].astype(np.int32)
            if not len(kept):
                continue
            held = np.isin(sets, kept)
            own, shared = np.unique(items[held], return_counts=True)
            evident = np.zeros(len(distinct), np.bool_)
            evident[gram_of[held]] = True
            chosen = evident[at]
            yield Overlap(row, kept, own, shared, self._spans(places[chosen], grams[chosen]))

    def examples(self, overlaps: list[Overlap]) -> list[Example]:
        """For each evaluation set the items that most of is shared, then by name and row; sorted by row."""
        counts = self.owners.gram_counts
        ranked: dict[int, list[tuple[float, str, int, int, int]]] = {}
        for overlap in overlaps:
            for item, shared in zip(overlap.items.tolist(), overlap.grams.tolist(), strict=True):
                of_set = ranked.setdefault(int(self.owners.sets[item]), [])
                of_set.append((-shared / int(counts[item]), self.owners.ids[item], overlap.row, item, shared))
        chosen = [one for of_set in ranked.values() for one in sorted(of_set)[:EXAMPLES]]
        return sorted(
            (Example(row, item, shared, self._longest(row, item)) for _, _, row, item, shared in chosen),
            key=lambda example: (example.row, example.item),
        )

    def _longest(self, row: int, item: int) -> Span:
        places, grams = self._of_row(row)
        own, gram_of = self.owners.of_grams(grams)
        mine = gram_of[own == item]
        return max(self._spans(places[mine], grams[mine]), key=lambda span: (span[1] - span[0], -span[0]))

    def _of_row(self, row: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        begin, end = np.searchsorted(self.rows, [row, row + 1]).tolist()
        return self.places[begin:end], self.grams[begin:end]

    def _spans(self, places: NDArray[np.int64], grams: NDArray[np.int64]) -> list[Span]:
        return merged_spans(places, places + self.owners.lengths[grams])


def merged_spans(begins: NDArray[np.int64], ends: NDArray[np.int64]) -> list[Span]:
    """Spans [begin, end) of words, ascending, with those that overlap or touch made one; ends become inclusive."""
    order = np.argsort(begins, kind="stable")
    begins, ends = begins[order], np.maximum.accumulate(ends[order])
    new = np.ones(len(begins), np.bool_)
    new[1:] = begins[1:] > ends[:-1]
    firsts = np.flatnonzero(new)
    lasts = np.append(firsts[1:], len(begins)) - 1
    return list(zip(begins[firsts].tolist(), (ends[lasts] - 1).tolist(), strict=True))
