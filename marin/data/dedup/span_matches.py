"""Which n-grams stand in an earlier place too, and the spans that they make.

Imports numpy; import this module inside step bodies only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marin.data.dedup.exchange import Hashes

Numbers = NDArray[np.int64]
SmallNumbers = NDArray[np.int32]


def repeated_hashes(hashes: Sequence[Hashes], counts: Sequence[Numbers]) -> list[Hashes]:
    """Of the distinct hashes of each shard those that occur at least twice in all; ``counts`` says how often there."""
    if not hashes:
        return []
    distinct, at = np.unique(np.concatenate(hashes), return_inverse=True)
    totals = np.zeros(len(distinct), np.int64)
    np.add.at(totals, at, np.concatenate(counts))
    again = (totals > 1)[at]
    ends = np.cumsum([len(one) for one in hashes])
    return [one[of_shard] for one, of_shard in zip(hashes, np.split(again, ends[:-1]), strict=True)]


@dataclass(frozen=True)
class Grams:
    """Places of n-grams, one row each.

    Attributes:
        hashes: hash of the n-gram.
        order: number of the document: the lesser one is preferred.
        places: number of the n-gram's first word in the document.
    """

    hashes: Hashes
    order: SmallNumbers
    places: Numbers


def originals(grams: Grams, size: int) -> Numbers:
    """For each row, the row of the n-gram's preferred place; -1 for that row itself, and for what overlaps it.

    The preferred place is the first in the least document. What overlaps it in the same document repeats itself
    within fewer words than an n-gram has, and to cut that would cut the place that stays.
    """
    rows = len(grams.hashes)
    if not rows:
        return np.zeros(0, np.int64)
    sort = np.lexsort((grams.places, grams.order, grams.hashes))
    hashes = grams.hashes[sort]
    begins = np.concatenate([[True], hashes[1:] != hashes[:-1]])
    first = sort[np.flatnonzero(begins)][np.cumsum(begins) - 1]
    found = np.empty(rows, np.int64)
    found[sort] = first
    overlaps = (grams.order == grams.order[found]) & (grams.places < grams.places[found] + size)
    return np.where(overlaps, -1, found)


@dataclass(frozen=True)
class Repeats:
    """N-grams of one shard that stand in a preferred place too, one row each, by row and place.

    Attributes:
        rows: row of the document in its shard.
        places: number of the first word.
        shards: number of the shard of the preferred place.
        of_rows: row of its document in that shard.
        of_places: number of its first word.
    """

    rows: SmallNumbers
    places: SmallNumbers
    shards: SmallNumbers
    of_rows: SmallNumbers
    of_places: SmallNumbers


@dataclass(frozen=True)
class Segment:
    """A maximal span of words of a document that stands in one run in a preferred place.

    Attributes:
        row: row of the document in its shard.
        first: number of the first word.
        after: number after the last word.
        cut: number of the first word that no segment before this one has.
        shard: number of the shard of the preferred place.
        of_row: row of its document there.
        of_first: number of its first word.
    """

    row: int
    first: int
    after: int
    cut: int
    shard: int
    of_row: int
    of_first: int


def segments(repeats: Repeats, size: int) -> list[Segment]:
    """The spans of repeated n-grams of ``size`` words, in order; they overlap where one place follows another."""
    if not len(repeats.rows):
        return []
    sort = np.argsort((repeats.rows.astype(np.int64) << 32) | repeats.places)
    rows, places, shards, of_rows, of_places = (
        column[sort] for column in (repeats.rows, repeats.places, repeats.shards, repeats.of_rows, repeats.of_places)
    )
    goes_on = (
        (rows[1:] == rows[:-1])
        & (places[1:] == places[:-1] + 1)
        & (shards[1:] == shards[:-1])
        & (of_rows[1:] == of_rows[:-1])
        & (of_places[1:] == of_places[:-1] + 1)
    )
    begins = np.concatenate([[0], np.flatnonzero(~goes_on) + 1])
    ends = np.concatenate([begins[1:], [len(rows)]]) - 1
    found: list[Segment] = []
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        first, after = int(places[begin]), int(places[end]) + size
        before = found[-1] if found and found[-1].row == rows[begin] else None
        found.append(
            Segment(
                row=int(rows[begin]),
                first=first,
                after=after,
                cut=first if before is None else max(first, before.after),
                shard=int(shards[begin]),
                of_row=int(of_rows[begin]),
                of_first=int(of_places[begin]),
            )
        )
    return found
