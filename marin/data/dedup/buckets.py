"""Documents that share a key, as stars: every one is tied to the least of its bucket, however large that is.

A task reduces its own documents first and hands on one entry for each key, so that a bucket of millions is as many
entries as there are tasks.

Imports numpy; import this module inside step bodies only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marin.data.dedup.components import pack_pairs, unpack_pairs
from marin.data.dedup.config import DedupConfig
from marin.data.dedup.exchange import deal_out, gather, store_columns
from marin.data.dedup.keys import Hashes, Keys, Numbers, read_keys
from marin.data.dedup.places import Group
from marin.data.filtering.words import mix
from marin.execution import Intermediate, current_run

HEAVY = 1_000
"""Documents from which a bucket of one LSH band counts as heavy in the report."""

WORDS, URLS, BANDS = 0, 1, 2
_KINDS = (WORDS, URLS, BANDS)
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Entries:
    """Keys of one kind with the least document that has each, and how many have it."""

    high: Hashes
    low: Hashes
    least: Numbers
    counts: Numbers


@dataclass(frozen=True)
class BucketCounts:
    """Buckets of LSH bands: those of more than one document, the heavy ones, and the size of the largest."""

    shared: int = 0
    heavy: int = 0
    largest: int = 0

    def __add__(self, other: BucketCounts) -> BucketCounts:
        return BucketCounts(self.shared + other.shared, self.heavy + other.heavy, max(self.largest, other.largest))


@dataclass(frozen=True)
class Edges:
    """Files of pairs of document numbers: by words, by address, by bands; and how many there are in all."""

    words: Intermediate
    urls: Intermediate
    bands: Intermediate
    count: int


@dataclass(frozen=True)
class ScanTask:
    """A group of shards whose keys are read. Pickles.

    Attributes:
        group: the group.
        parts: parts that keys are dealt out to; 0 when there is no other group.
        config: what counts as a copy.
    """

    group: Group
    parts: int
    config: DedupConfig


@dataclass(frozen=True)
class Scanned:
    """What a group's keys come to.

    Attributes:
        order: file of the preference of all documents of the group.
        followers: file of its documents that were found to be copies before; None without any.
        edges: pairs within the group.
        dealt: for each kind and each part a file of keys, None where there is none.
        without_words: documents that cannot be copies of any.
        buckets: counts, when there is no other group.
    """

    order: Intermediate
    followers: Intermediate | None
    edges: Edges
    dealt: tuple[tuple[Intermediate | None, ...], ...]
    without_words: int
    buckets: BucketCounts


@dataclass(frozen=True)
class JoinTask:
    """One part of the keys of all groups: for each kind the files. Pickles."""

    part: int
    files: tuple[tuple[Intermediate, ...], ...]


@dataclass(frozen=True)
class Joined:
    """Pairs across groups, and what was counted."""

    edges: Edges
    buckets: BucketCounts


def scan_group(task: ScanTask) -> Scanned:
    """Read the keys of a group, and reduce them."""
    keys, order, followers = read_keys(task.group, task.config)
    reduced = [stars(kind) for kind in entries_of(keys)]
    alone = not task.parts
    return Scanned(
        order=store_columns("order.npy", order.levels, order.heads, order.sizes),
        followers=store_columns(
            "followers.npy", followers.numbers, followers.keepers, followers.kinds, followers.shares
        )
        if len(followers.numbers)
        else None,
        edges=_store([edges for edges, _ in reduced]),
        dealt=()
        if alone
        else tuple(
            deal_out(
                f"keys-{kind}", entries.high, task.parts, (entries.high, entries.low, entries.least, entries.counts)
            )
            for kind, (_, entries) in zip(_KINDS, reduced, strict=True)
        ),
        without_words=task.group.stop - task.group.start - len(keys.numbers) - len(followers.numbers),
        buckets=_counted(reduced[BANDS][1]) if alone else BucketCounts(),
    )


def join_part(task: JoinTask) -> Joined:
    """Tie the documents of different groups that share a key."""
    kinds = (np.uint64, np.uint64, np.int64, np.int64)
    reduced = [stars([Entries(*gather(files, kinds))]) for files in task.files]
    return Joined(_store([edges for edges, _ in reduced]), _counted(reduced[BANDS][1]))


def join_tasks(scanned: Sequence[Scanned], parts: int) -> list[JoinTask]:
    """A task for each part."""
    return [
        JoinTask(
            part,
            tuple(tuple(file for one in scanned if (file := one.dealt[kind][part]) is not None) for kind in _KINDS),
        )
        for part in range(parts)
    ]


def entries_of(keys: Keys) -> list[list[Entries]]:
    """For each kind of key the entries of single documents; each band is a list of its own."""
    ones = np.ones(len(keys.numbers), np.int64)
    addressed = keys.urls.any(axis=1)
    bands = []
    for band in range(keys.bands.shape[1]):
        # The number of the band is mixed in, so that equal keys of different bands do not meet.
        with np.errstate(over="ignore"):
            mixed = mix(keys.bands[:, band] + np.uint64(band + 1) * _FACTOR)
        bands.append(Entries(mixed, np.zeros(len(mixed), np.uint64), keys.numbers, ones))
    return [
        [Entries(keys.words[:, 0], keys.words[:, 1], keys.numbers, ones)],
        [Entries(keys.urls[addressed, 0], keys.urls[addressed, 1], keys.numbers[addressed], ones[addressed])],
        bands,
    ]


def stars(lists: Sequence[Entries]) -> tuple[tuple[Numbers, Numbers], Entries]:
    """Pairs (document, the least of its bucket), each once, and one entry for each key."""
    pairs = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    nothing = np.zeros(0, np.uint64)
    rest = [Entries(nothing, nothing, np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for entries in lists:
        if not len(entries.high):
            continue
        order = np.lexsort((entries.least, entries.low, entries.high))
        high, low, numbers = entries.high[order], entries.low[order], entries.least[order]
        first = np.ones(len(order), bool)
        first[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
        begins = np.flatnonzero(first)
        centres = np.repeat(numbers[begins], np.diff(begins, append=len(order)))
        tied = ~first & (numbers != centres)
        pairs.append((numbers[tied], centres[tied]))
        rest.append(Entries(high[begins], low[begins], numbers[begins], np.add.reduceat(entries.counts[order], begins)))
    return distinct(*(np.concatenate(ends) for ends in zip(*pairs, strict=True))), Entries(
        *(np.concatenate([getattr(one, name) for one in rest]) for name in ("high", "low", "least", "counts"))
    )


def distinct(one: Numbers, other: Numbers) -> tuple[Numbers, Numbers]:
    """Pairs once each, sorted."""
    order = np.lexsort((other, one))
    one, other = one[order], other[order]
    first: NDArray[np.bool_] = np.ones(len(one), bool)
    first[1:] = (one[1:] != one[:-1]) | (other[1:] != other[:-1])
    return one[first], other[first]


def load_pairs(files: Sequence[Intermediate]) -> tuple[Numbers, Numbers]:
    """The pairs of several files."""
    found = [unpack_pairs(current_run().load_intermediate(file)) for file in files]
    if not found:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    one, other = zip(*found, strict=True)
    return np.concatenate(one), np.concatenate(other)


def _store(pairs: Sequence[tuple[Numbers, Numbers]]) -> Edges:
    run = current_run()
    words, urls, bands = (
        run.store_intermediate(f"edges-{kind}.npy", pack_pairs(*found))
        for kind, found in zip(_KINDS, pairs, strict=True)
    )
    return Edges(words, urls, bands, sum(len(one) for one, _ in pairs))


def _counted(entries: Entries) -> BucketCounts:
    return BucketCounts(
        shared=int(np.count_nonzero(entries.counts > 1)),
        heavy=int(np.count_nonzero(entries.counts >= HEAVY)),
        largest=int(entries.counts.max(initial=0)),
    )
