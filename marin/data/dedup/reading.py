"""Reading the candidates of a group of shards: ids of all, n-grams of those whose text is compared.

Imports numpy and pyarrow; import this module inside step bodies only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from marin.data.dedup.candidates import Following, Wanted
from marin.data.dedup.columns import arrow_rows, whole
from marin.data.dedup.config import DedupConfig
from marin.data.dedup.exchange import load_columns, store_columns
from marin.data.dedup.grams import Hashes, grams_of_all
from marin.data.dedup.keys import Numbers, contents_of, urls_of
from marin.data.dedup.places import Group
from marin.execution import Intermediate, current_run

_ROWS = 512


@dataclass(frozen=True)
class ReadTask:
    """A group whose candidates are read. Pickles.

    Attributes:
        group: the group.
        sources: names of all sources.
        wanted: files of its candidates (see `Wanted`).
        following: file of those that follow candidates (see `Following`), or None.
        config: what counts as a copy.
    """

    group: Group
    sources: tuple[str, ...]
    wanted: tuple[Intermediate, ...]
    following: Intermediate | None
    config: DedupConfig


@dataclass(frozen=True)
class Dealt:
    """A file of candidates for one part of a task of verification."""

    task: int
    part: int
    file: Intermediate


@dataclass(frozen=True)
class ReadGroup:
    """The candidates of a group: files of `Candidates`, and those of followers by task."""

    candidates: tuple[Dealt, ...]
    followers: tuple[Dealt, ...]


@dataclass(frozen=True)
class Candidates:
    """Documents to compare, an entry each.

    Attributes:
        numbers: their numbers.
        labels: least number of their component.
        orders: place in the order of preference; equal where ids have to decide.
        contents: hashes of their words.
        urls: hashes of their addresses, empty without one, or when it does not count.
        origins: number of their artifact.
        sources: number of their source.
        protected: whether they always stay.
        ids: their ids, as bytes.
        counts: number of their n-grams; 0 where the text was not read.
        grams: n-grams of all of them behind one another.
    """

    numbers: Numbers
    labels: Numbers
    orders: Numbers
    contents: NDArray[Any]
    urls: NDArray[Any]
    origins: Numbers
    sources: Numbers
    protected: NDArray[np.bool_]
    ids: NDArray[Any]
    counts: Numbers
    grams: Hashes

    def columns(self) -> tuple[NDArray[Any], ...]:
        """All columns in their order."""
        return tuple(getattr(self, name) for name in self.__dataclass_fields__)

    def rows(self, chosen: NDArray[Any]) -> Candidates:
        """Some of the entries, in the order of the row numbers given."""
        *columns, grams = self.columns()
        found = [column[chosen] for column in columns]
        found.append(grams[gram_places(self.counts, chosen)])
        return Candidates(*found)

    @staticmethod
    def joined(parts: list[Candidates]) -> Candidates:
        """The entries of several behind one another."""
        return Candidates(*(np.concatenate(columns) for columns in zip(*(p.columns() for p in parts), strict=True)))


def gram_places(counts: Numbers, chosen: NDArray[Any]) -> Numbers:
    """Where the n-grams of some entries lie, when those of all lie behind one another.

    Args:
        counts: n-grams of each entry.
        chosen: row numbers.
    """
    starts = (np.cumsum(counts) - counts)[chosen]
    sizes = counts[chosen]
    total = int(sizes.sum())
    return np.repeat(starts - (np.cumsum(sizes) - sizes), sizes) + np.arange(total)


def read_group(task: ReadTask) -> ReadGroup:
    """Read what is compared of a group's documents, and deal it out to the tasks of verification."""
    candidates: list[Dealt] = []
    followers: list[Dealt] = []
    if task.wanted:
        files = [load_columns(file) for file in task.wanted]
        wanted = Wanted(*(np.concatenate(columns) for columns in zip(*files, strict=True)))
        wanted = wanted.rows(np.argsort(wanted.numbers, kind="stable"))
        found = _read(task, wanted)
        parts = wanted.tasks << 32 | wanted.bins
        for part in np.unique(parts).tolist():
            rows = np.flatnonzero(parts == part)
            of_task, of_part = part >> 32, part & 0xFFFFFFFF
            file = store_columns(f"candidates-{of_task:05d}-{of_part:05d}.npy", *found.rows(rows).columns())
            candidates.append(Dealt(of_task, of_part, file))
    if task.following is not None:
        following = Following(*load_columns(task.following))
        for of_task in np.unique(following.tasks).tolist():
            rows = np.flatnonzero(following.tasks == of_task)
            file = store_columns(f"followers-{of_task:05d}.npy", *following.rows(rows).columns())
            followers.append(Dealt(of_task, 0, file))
    return ReadGroup(tuple(candidates), tuple(followers))


def _read(task: ReadTask, wanted: Wanted) -> Candidates:
    parts: list[Candidates] = []
    for piece in task.group.pieces:
        first, last = np.searchsorted(wanted.numbers, [piece.start, piece.start + piece.shard.rows])
        if first == last:
            continue
        own = wanted.rows(np.arange(first, last))
        origin = task.group.origin_of(piece)
        counts = np.zeros(len(own.numbers), np.int64)
        grams: list[Hashes] = []
        ids: list[NDArray[Any]] = []
        done = 0
        with origin.pages.open(piece.shard.name) as stream:
            for table in _wanted_rows(pq.ParquetFile(stream), own.numbers - piece.start):
                end = done + table.num_rows
                ids.append(whole(table.column("id")))
                reads = np.flatnonzero(own.reads[done:end])
                texts = table.column("text").take(arrow_rows(reads)).to_pylist()
                found = grams_of_all(texts, task.config.n_gram)
                counts[done + reads] = [len(one) for one in found]
                grams += found
                done = end
                current_run().progress(done, len(own.numbers), "candidates")
        full, rows = np.full(len(own.numbers), 0), own.numbers - piece.start
        parts.append(
            Candidates(
                own.numbers,
                own.labels,
                own.orders,
                contents_of(origin, piece)[rows],
                urls_of(origin, piece)[rows] if task.config.by_url else np.full(len(rows), b""),
                full + piece.origin,
                full + task.sources.index(piece.shard.source),
                np.full(len(own.numbers), piece.shard.source in task.config.protected),
                np.concatenate(ids),
                counts,
                np.concatenate([np.zeros(0, np.uint64), *grams]),
            )
        )
    return Candidates.joined(parts)


def _wanted_rows(file: pq.ParquetFile, rows: Numbers) -> Iterator[pa.Table]:
    """Ids and texts of some rows, ascending; row groups without any are not read."""
    start = 0
    for group in range(file.num_row_groups):
        size = file.metadata.row_group(group).num_rows
        begin, end = np.searchsorted(rows, [start, start + size])
        if begin < end:
            at = start
            for batch in file.iter_batches(batch_size=_ROWS, row_groups=[group], columns=["id", "text"]):
                first, last = np.searchsorted(rows, [at, at + batch.num_rows])
                if first < last:
                    chosen = batch.take(arrow_rows(rows[first:last] - at))
                    yield pa.Table.from_batches([chosen])
                at += batch.num_rows
        start += size
