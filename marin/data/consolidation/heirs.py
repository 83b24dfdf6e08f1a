"""Copies that take the place of a document that stood in for them and is dropped for another reason.

Whether one is needed is known only when all shards are judged. Each leaves the rows that matter, ordered by the id of
the document that stands in; ids are hashes, so equal ranges of them are equal shares of the work.

Imports pyarrow and numpy; import this module inside step bodies only.
"""

from __future__ import annotations

import bisect
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from marin.data.consolidation.verdicts import unpack
from marin.execution import Intermediate, current_run

COPIES = pa.schema({"original": pa.string(), "id": pa.string(), "number": pa.int64()})
"""A copy that passes, with the document that stands in for it, its own id, and its number among all documents; or, with
neither id nor number, a document that may stand in for others and does not pass."""


def rows_that_matter(verdicts: pa.Table, start: int) -> pa.Table:
    """The rows of `COPIES` that a shard leaves.

    Args:
        verdicts: the verdicts on its documents.
        start: number of its first document.
    """
    numbers = pa.array(np.arange(start, start + verdicts.num_rows), pa.int64())
    passes = pc.is_null(verdicts.column("reason"))
    is_copy = pc.is_valid(verdicts.column("duplicate_of"))
    waiting = pc.and_(passes, is_copy)
    lost = pc.and_(pc.and_(pc.invert(passes), pc.invert(is_copy)), verdicts.column("clustered"))
    table = pa.table([verdicts.column("duplicate_of"), verdicts.column("id"), numbers], schema=COPIES)
    originals = verdicts.column("id").filter(lost)
    nulls = [pa.nulls(len(originals), COPIES.field(name).type) for name in ("id", "number")]
    return pa.concat_tables([table.filter(waiting), pa.table([originals, *nulls], schema=COPIES)])


def partitioned(rows: pa.Table, partitions: int, by: str = "original") -> Iterator[pa.Table]:
    """Rows dealt out by a column of ids, such as that of the document that stands in, in equal ranges of ids."""
    if partitions == 1:
        yield rows
        return
    ordered = rows.sort_by(by).combine_chunks()
    ids = ordered.column(by)
    bounds = [f"{(part << 32) // partitions:08x}" for part in range(1, partitions)]
    ends = [bisect.bisect_left(range(len(ids)), bound, key=lambda at: ids[at].as_py()) for bound in bounds]
    for begin, end in zip([0, *ends], [*ends, len(ids)], strict=True):
        yield ordered.slice(begin, end - begin)


def heirs_among(rows: pa.Table) -> NDArray[np.int64]:
    """The numbers of the documents that take a lost one's place, ascending: of its copies that pass the one with the
    least id, and of equal ids the first."""
    waits = pc.is_valid(rows.column("id"))
    lost = rows.filter(pc.invert(waits)).column("original")
    orphans = rows.filter(pc.and_(waits, pc.is_in(rows.column("original"), value_set=lost)))
    if not orphans.num_rows:
        return np.zeros(0, np.int64)
    ordered = orphans.sort_by([("original", "ascending"), ("id", "ascending"), ("number", "ascending")])
    originals = ordered.column("original").combine_chunks()
    first = np.ones(len(originals), bool)
    first[1:] = pc.not_equal(originals[1:], originals[:-1]).to_numpy(zero_copy_only=False)
    numbers: NDArray[np.int64] = ordered.column("number").to_numpy()[first]
    return np.sort(numbers)


@dataclass(frozen=True)
class HeirTask:
    """The files of one partition. Pickles."""

    rows: tuple[Intermediate, ...]


@dataclass(frozen=True)
class Heirs:
    """The numbers of one partition's heirs, as a file of `pack_numbers`; None without any."""

    numbers: Intermediate | None


def find_heirs(task: HeirTask) -> Heirs:
    """The heirs of a partition. Holds its rows, of some 80 bytes each."""
    run = current_run()
    numbers = heirs_among(pa.concat_tables([unpack(run.load_intermediate(file)) for file in task.rows]))
    return Heirs(run.store_intermediate("heirs.npy", pack_numbers(numbers)) if len(numbers) else None)


def merge_heirs(found: Sequence[Heirs]) -> NDArray[np.int64]:
    """The numbers of all heirs, ascending."""
    run = current_run()
    files = [one.numbers for one in found if one.numbers is not None]
    merged = np.concatenate([np.zeros(0, np.int64), *(unpack_numbers(run.load_intermediate(file)) for file in files)])
    return np.sort(merged)


def pack_numbers(numbers: NDArray[np.int64]) -> bytes:
    """Numbers as the bytes of an intermediate file."""
    stream = io.BytesIO()
    np.save(stream, numbers.astype("<i8", copy=False), allow_pickle=False)
    return stream.getvalue()


def unpack_numbers(data: bytes) -> NDArray[np.int64]:
    """What `pack_numbers` packed."""
    numbers: NDArray[np.int64] = np.load(io.BytesIO(data), allow_pickle=False)
    return numbers
