"""Judging shards before any is written: each document for itself, and the rows that decide over others.

Imports pyarrow; import this module inside step bodies only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from marin.data.consolidation.config import Policy, TakedownEntry
from marin.data.consolidation.decide import TAKEDOWN
from marin.data.consolidation.heirs import COPIES, partitioned, rows_that_matter
from marin.data.consolidation.places import Place
from marin.data.consolidation.takedown import TakedownList
from marin.data.consolidation.verdicts import judge, pack, unpack
from marin.execution import Intermediate, current_run

_TASK_ROWS = 1 << 18
"""Documents of a task. Judging reads no texts, so a task takes more than one that writes does."""

_PARTITION_ROWS = 1 << 24
"""Documents for which there is one partition of the rows that decide over others."""

IDS = pa.schema({"id": pa.string()})


@dataclass(frozen=True)
class JudgeTask:
    """Shards that are judged together. Pickles."""

    places: tuple[Place, ...]
    policy: Policy
    takedowns: Intermediate
    partitions: int


@dataclass(frozen=True)
class Judged:
    """What one task came back with.

    Attributes:
        verdicts: for each shard the file of its verdicts.
        cells: topics and quality buckets that occur.
        copies: for each partition a file of `COPIES`; None without any row.
        lost: how many of these rows are documents that do not pass.
        waiting: how many are copies that pass.
        gone: file of the ids whose copies are taken down; None without any.
        met: documents by entry of the takedown list.
    """

    verdicts: tuple[Intermediate, ...]
    cells: tuple[tuple[int, int], ...]
    copies: tuple[Intermediate | None, ...]
    lost: int
    waiting: int
    gone: Intermediate | None
    met: dict[str, int]


def tasks_of(places: Iterable[Place], policy: Policy, takedowns: TakedownList) -> Iterator[JudgeTask]:
    """All shards in tasks of about equal size, in order."""
    entries = [(entry.what, entry.reason) for entry in takedowns.entries]
    listed = current_run().store_intermediate("takedowns.json", json.dumps(entries).encode())
    everything = list(places)
    total = sum(place.shard.rows for place in everything)
    partitions = max(1, -(-total // _PARTITION_ROWS))
    chosen: list[Place] = []
    filled = 0
    for place in everything:
        chosen.append(place)
        filled += place.shard.rows
        if filled >= _TASK_ROWS:
            yield JudgeTask(tuple(chosen), policy, listed, partitions)
            chosen, filled = [], 0
    if chosen:
        yield JudgeTask(tuple(chosen), policy, listed, partitions)


def judge_shards(task: JudgeTask) -> Judged:
    """Judge the documents of a task. Holds the columns of one shard and the rows that decide over others."""
    run = current_run()
    entries = json.loads(run.load_intermediate(task.takedowns))
    takedowns = TakedownList(TakedownEntry(what, reason) for what, reason in entries)
    found = _Found()
    done = 0
    for number, place in enumerate(task.places):
        verdicts = judge(place, task.policy, takedowns)
        found.verdicts.append(run.store_intermediate(f"verdicts/{number:05d}.arrow", pack(verdicts)))
        found.add(verdicts, place.start, task.policy)
        done += place.shard.rows
        run.progress(done)
    return Judged(
        verdicts=tuple(found.verdicts),
        cells=tuple(sorted(found.cells)),
        copies=tuple(
            run.store_intermediate(f"copies/{part:05d}.arrow", pack(rows)) if rows.num_rows else None
            for part, rows in enumerate(partitioned(found.rows(), task.partitions))
        ),
        lost=found.lost,
        waiting=found.waiting,
        gone=run.store_intermediate("gone.arrow", pack(found.ids())) if found.gone else None,
        met=dict(sorted(takedowns.met.items())),
    )


@dataclass
class _Found:
    """What a task collects of its shards."""

    verdicts: list[Intermediate] = field(default_factory=list)
    cells: set[tuple[int, int]] = field(default_factory=set)
    copies: list[pa.Table] = field(default_factory=list)
    gone: list[pa.Table] = field(default_factory=list)
    lost: int = 0
    waiting: int = 0

    def add(self, verdicts: pa.Table, start: int, policy: Policy) -> None:
        """Take in the verdicts on a shard whose first document has a number."""
        pairs = verdicts.select(["topic", "quality"]).group_by(["topic", "quality"]).aggregate([])
        self.cells.update(zip(pairs.column("topic").to_pylist(), pairs.column("quality").to_pylist(), strict=True))
        if policy.drop_duplicates:
            rows = rows_that_matter(verdicts, start)
            waiting = rows.num_rows - rows.column("id").null_count
            self.copies.append(rows)
            self.waiting += waiting
            self.lost += rows.num_rows - waiting
        if policy.takedown.copies:
            taken = verdicts.filter(pc.fill_null(pc.equal(verdicts.column("reason"), TAKEDOWN), False))
            if taken.num_rows:
                # Copies name the one that stands in for them, so a listed copy takes that one and the others with it.
                stands_in = pc.coalesce(taken.column("duplicate_of"), taken.column("id"))
                self.gone.append(pa.table([stands_in], schema=IDS))

    def rows(self) -> pa.Table:
        """The rows that decide over others."""
        return pa.concat_tables([COPIES.empty_table(), *self.copies]).combine_chunks()

    def ids(self) -> pa.Table:
        """The ids whose copies are taken down."""
        return distinct(self.gone)


def distinct(tables: Sequence[pa.Table]) -> pa.Table:
    """The ids of some tables, each once, sorted."""
    return pa.concat_tables([IDS.empty_table(), *tables]).group_by("id").aggregate([]).sort_by("id")


def merge_gone(judged: Sequence[Judged]) -> Intermediate | None:
    """The ids of all tasks whose copies are taken down, in one file; as many as there are listed documents."""
    run = current_run()
    files = [one.gone for one in judged if one.gone is not None]
    if not files:
        return None
    return run.store_intermediate("gone.arrow", pack(distinct([unpack(run.load_intermediate(file)) for file in files])))
