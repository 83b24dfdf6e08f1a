"""Repeated passages whose place is not kept: which documents keep the text instead.

A passage may be cut only where its text stays elsewhere. Whether the document that holds it stays is known when all are
judged, and only then; so each task leaves the ids of what it keeps, and for each passage of these documents the place
that it points to. Both are dealt out by the id of the holder; ids are hashes, so equal ranges are equal shares.

A holder that is dropped, or that lies in the other split, holds nothing. Of the passages that point to it, in one
split, those of the least documents take its role: they stay, and what lies within one of them is cut for its sake.

Imports pyarrow and numpy; import this module inside step bodies only.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from marin.data.consolidation.bundles import Bundle
from marin.data.consolidation.heirs import partitioned
from marin.data.consolidation.judging import IDS
from marin.data.consolidation.places import Place
from marin.data.consolidation.settle import load_elsewhere, settle
from marin.data.consolidation.verdicts import pack, unpack
from marin.data.documents.attributes import read_attributes
from marin.data.documents.split import split_of
from marin.execution import Intermediate, StepError, current_run

CLAIMS = pa.schema(
    {
        "holder": pa.string(),
        "start": pa.int64(),
        "end": pa.int64(),
        "id": pa.string(),
        "number": pa.int64(),
        "kind": pa.int8(),
        "span": pa.int32(),
        "apart": pa.int8(),
    }
)
"""A passage of a document that stays: the document that holds its text and the characters there; its own document, the
number of that among all, which of the cuts it is of and which of the row; 1 where the holder is of the other split."""

LEFT = pa.schema({"number": pa.int64(), "kind": pa.int8(), "span": pa.int32(), "lost": pa.bool_()})
"""A passage that stays in its place, and whether because its holder is dropped; else that is of the other split."""

_PLACE = r"(?s)^(?P<holder>.+):(?P<start>[0-9]+)-(?P<end>[0-9]+)$"
_PARTITION_ROWS = 1 << 23
"""Documents for which there is one partition of kept ids and claims."""

_BATCH_ROWS = 1024


@dataclass(frozen=True)
class ClaimTask:
    """A bundle whose documents say where their passages stay. Pickles."""

    bundle: Bundle
    partitions: int


@dataclass(frozen=True)
class Claimed:
    """What one bundle leaves, a file for each partition, None for nothing: ids that are kept, and `CLAIMS`."""

    kept: tuple[Intermediate | None, ...]
    claims: tuple[Intermediate | None, ...]


@dataclass(frozen=True)
class HolderTask:
    """The files of one partition. Pickles."""

    kept: tuple[Intermediate, ...]
    claims: tuple[Intermediate, ...]


@dataclass(frozen=True)
class LeftFile:
    """A file of `LEFT`; None for nothing."""

    file: Intermediate | None


def find_left(bundles: Sequence[Bundle]) -> pa.Table:
    """The passages of all bundles that stay though they are repeated, as `LEFT` in order: 14 bytes each."""
    run = current_run()
    partitions = max(1, -(-sum(bundle.rows for bundle in bundles) // _PARTITION_ROWS))
    claimed = run.map(claim_places, [ClaimTask(bundle, partitions) for bundle in bundles], unit="claimed")
    tasks = [
        HolderTask(tuple(file for file in kept if file is not None), tuple(file for file in claims if file is not None))
        for kept, claims in zip(
            zip(*(one.kept for one in claimed), strict=True),
            zip(*(one.claims for one in claimed), strict=True),
            strict=True,
        )
    ]
    tasks = [task for task in tasks if task.claims]
    # A turn over the cluster for a single task takes longer than the task.
    found = [settle_holders(tasks[0])] if len(tasks) == 1 else run.map(settle_holders, tasks, unit="parts")
    files = [unpack(run.load_intermediate(one.file)) for one in found if one.file is not None]
    return _table(files, LEFT).sort_by([(name, "ascending") for name in ("number", "kind", "span")])


def claim_places(task: ClaimTask) -> Claimed:
    """Tell which documents of a bundle stay, and where their passages stay.

    Holds the columns of one shard, the ids that are kept, and the claims, of some 130 bytes each.
    """
    run = current_run()
    bundle = task.bundle
    elsewhere = load_elsewhere(bundle.heirs, bundle.gone)
    kept: list[pa.Table] = []
    claims: list[pa.Table] = []
    done = 0
    for part in bundle.parts:
        verdicts = unpack(run.load_intermediate(part.verdicts))
        stays = pc.is_null(settle(verdicts, part.place.start, elsewhere, bundle.policy).reasons)
        ids = verdicts.column("id").combine_chunks()
        kept.append(pa.table([ids.filter(stays)], schema=IDS))
        for kind in range(len(part.place.cuts)):
            found = _claims(part.place, kind, ids, stays.to_numpy(zero_copy_only=False))
            if found is not None and found.num_rows:
                claims.append(_told_apart(found, bundle.validation_share))
        done += part.place.shard.rows
        run.progress(done, bundle.rows)
    return Claimed(
        _dealt_out("kept", _table(kept, IDS), task.partitions, "id"),
        _dealt_out("claims", _table(claims, CLAIMS), task.partitions, "holder"),
    )


def _claims(place: Place, kind: int, ids: pa.Array, stays: NDArray[np.bool_]) -> pa.Table | None:
    """The claims of one kind of a shard, as yet without the split; None where passages do not tell where they stay."""
    cut = place.cuts[kind]
    table = read_attributes(cut, place.pages, place.shard, columns=("starts", "originals"))
    if "originals" not in table.column_names:
        return None
    originals = table.column("originals").combine_chunks()
    sizes = _sizes(originals)
    if not np.array_equal(sizes, _sizes(table.column("starts").combine_chunks())):
        raise StepError(
            f"the {cut.kind} of {place.shard.name} do not tell of every passage where it stays; make them again"
        )
    rows = np.repeat(np.arange(len(sizes)), sizes)
    spans = np.arange(len(rows)) - (np.cumsum(sizes) - sizes)[rows]
    chosen = stays[rows]
    named = pc.list_flatten(originals).filter(pa.array(chosen))
    parsed = pc.extract_regex(named, _PLACE)
    if parsed.null_count:
        raise StepError(
            f"the {cut.kind} of {place.shard.name} say that a passage stays in {named[_first_null(parsed)].as_py()!r}, "
            "which is not an id and characters as in id:17-230; make them again"
        )
    rows, spans = rows[chosen], spans[chosen]
    columns = [
        parsed.field("holder"),
        parsed.field("start").cast(pa.int64()),
        parsed.field("end").cast(pa.int64()),
        ids.take(pa.array(rows)),
        pa.array(place.start + rows, pa.int64()),
        pa.array(np.full(len(rows), kind), pa.int8()),
        pa.array(spans, pa.int32()),
        pa.array(np.zeros(len(rows)), pa.int8()),
    ]
    found = pa.table(columns, schema=CLAIMS)
    # A document that stays holds its own text.
    return found.filter(pc.not_equal(found.column("holder"), found.column("id")))


def _sizes(lists: pa.Array) -> NDArray[np.int64]:
    sizes: NDArray[np.int64] = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
    return sizes


def _first_null(column: pa.Array) -> int:
    place: int = pc.index(pc.is_null(column), True).as_py()
    return place


def _told_apart(claims: pa.Table, validation_share: float) -> pa.Table:
    """Claims with what their splits say."""
    apart = [
        split_of(holder, validation_share) != split_of(own, validation_share)
        for batch in claims.to_batches(max_chunksize=_BATCH_ROWS)
        for holder, own in zip(*(batch.column(name).to_pylist() for name in ("holder", "id")), strict=True)
    ]
    place = CLAIMS.get_field_index("apart")
    return claims.set_column(place, CLAIMS.field(place), pa.array(np.array(apart, np.int8)))


def _dealt_out(stem: str, rows: pa.Table, partitions: int, by: str) -> tuple[Intermediate | None, ...]:
    run = current_run()
    return tuple(
        run.store_intermediate(f"{stem}/{part:05d}.arrow", pack(own)) if own.num_rows else None
        for part, own in enumerate(partitioned(rows, partitions, by))
    )


def settle_holders(task: HolderTask) -> LeftFile:
    """The passages of a partition that stay. Holds the ids that they point to, and the claims on what is not there."""
    run = current_run()
    wanted = _table(
        [unpack(run.load_intermediate(file)).select(["holder"]) for file in task.claims],
        pa.schema([CLAIMS.field("holder")]),
    )
    named = wanted.group_by("holder").aggregate([]).column("holder").combine_chunks()
    there = _table(
        [
            ids.filter(pc.is_in(ids.column("id"), value_set=named))
            for ids in (unpack(run.load_intermediate(file)) for file in task.kept)
        ],
        IDS,
    )
    kept = there.column("id").combine_chunks()
    claims = _table([_unheld(unpack(run.load_intermediate(file)), kept) for file in task.claims], CLAIMS)
    found = left_among(claims, kept)
    return LeftFile(run.store_intermediate("left.arrow", pack(found)) if found.num_rows else None)


def _unheld(claims: pa.Table, kept: pa.Array) -> pa.Table:
    lost = pc.invert(pc.is_in(claims.column("holder"), value_set=kept))
    return claims.filter(pc.or_(lost, pc.equal(claims.column("apart"), 1)))


def left_among(claims: pa.Table, kept: pa.Array) -> pa.Table:
    """Of claims on places that hold nothing, those whose passage stays, as `LEFT`.

    Args:
        claims: rows of `CLAIMS`, in any order.
        kept: ids of the documents that stay.
    """
    order = ("kind", "holder", "apart", "id", "number", "span")
    ordered = claims.sort_by([(name, "ascending") for name in order]).combine_chunks()
    begins = np.zeros(ordered.num_rows, bool)
    begins[:1] = True
    for name in ("kind", "holder", "apart"):
        column = _column(ordered, name)
        begins[1:] |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    stays = np.zeros(ordered.num_rows, bool)
    held = _Held()
    for at, (begin, start, end) in enumerate(_rows(begins, ordered)):
        if begin:
            held = _Held()
        stays[at] = held.takes(start, end)
    lost = pc.invert(pc.is_in(_column(ordered, "holder"), value_set=kept))
    columns = [*(_column(ordered, name) for name in ("number", "kind", "span")), lost]
    return pa.table(columns, schema=LEFT).filter(pa.array(stays))


def _rows(begins: NDArray[np.bool_], claims: pa.Table) -> Iterator[tuple[bool, int, int]]:
    starts, ends = (_column(claims, name).to_numpy() for name in ("start", "end"))
    for first in range(0, len(begins), _BATCH_ROWS):
        batch = slice(first, first + _BATCH_ROWS)
        yield from zip(*(column[batch].tolist() for column in (begins, starts, ends)), strict=True)


class _Held:
    """Stretches of one document that others hold by now. None lies within another, so starts and ends both ascend."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def takes(self, start: int, end: int) -> bool:
        """Take in a stretch, unless one that is held has all of it; a part of it would not do, nor two halves."""
        after = bisect.bisect_right(self._starts, start)
        if after and self._ends[after - 1] >= end:
            return False
        low = bisect.bisect_left(self._starts, start)
        high = bisect.bisect_right(self._ends, end)
        self._starts[low:high], self._ends[low:high] = [start], [end]
        return True


class Left:
    """The passages of some documents that stay in their places."""

    def __init__(self, table: pa.Table) -> None:
        self._columns = [_column(table, name).to_numpy(zero_copy_only=False) for name in LEFT.names]

    def of(self, number: int) -> dict[tuple[int, int], bool]:
        """Those of a document, by which of the cuts and which span of the row; whether the holder is dropped."""
        numbers = self._columns[0]
        low, high = np.searchsorted(numbers, [number, number + 1])
        kinds, spans, lost = (column[low:high].tolist() for column in self._columns[1:])
        return {(kind, span): gone for kind, span, gone in zip(kinds, spans, lost, strict=True)}


def load_left(file: Intermediate | None) -> Left:
    """The passages of a bundle that stay in their places."""
    return Left(LEFT.empty_table() if file is None else unpack(current_run().load_intermediate(file)))


def _table(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([schema.empty_table(), *tables]).combine_chunks()


def _column(table: pa.Table, name: str) -> pa.Array:
    return table.column(name).combine_chunks()
