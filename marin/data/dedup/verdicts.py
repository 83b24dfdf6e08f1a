"""Verdicts on the documents of a group of shards, as attribute files and as lines for people.

Imports numpy and pyarrow; import this module inside step bodies only.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marin.data.dedup.columns import arrow_flags, arrow_numbers, arrow_rows, arrow_texts, present
from marin.data.dedup.exchange import load_columns
from marin.data.dedup.keys import KEPT, REASONS, Numbers
from marin.data.dedup.places import Group, Piece
from marin.data.dedup.settling import RELEASED, Fates
from marin.data.documents.artifacts import AttributeShard
from marin.data.documents.attributes import read_attributes, write_attributes
from marin.execution import Flow, Intermediate, current_run

_STEM = "duplicates"

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("duplicate_of", pa.string()),
        pa.field("duplicate_of_source", pa.string()),
        pa.field("duplicate_of_row", pa.int64()),
        pa.field("containment", pa.float64()),
        pa.field("cluster", pa.string()),
    ]
)
"""Columns of a file of duplicates. ``duplicate_of`` is the id of the document that stays in a dropped one's place,
``duplicate_of_row`` its row among all documents of its artifact, shards in the order of their names; ``containment``
the share of the dropped document's n-grams in it, null when unknown; ``cluster`` the id of the document that stays, in
its own row too when others are dropped for it."""


_ENCODER = json.JSONEncoder(ensure_ascii=False, sort_keys=True)


@dataclass(frozen=True)
class WriteTask:
    """A group whose verdicts are written. Pickles.

    Attributes:
        group: the group.
        origin_starts: number of the first document of each artifact.
        sources: names of all sources.
        fates: files of `Fates` of its documents.
        settings: what the verdicts were made with.
    """

    group: Group
    origin_starts: tuple[int, ...]
    sources: tuple[str, ...]
    fates: tuple[Intermediate, ...]
    settings: dict[str, str]


@dataclass(frozen=True)
class WrittenGroup:
    """What was written.

    Attributes:
        shards: the attribute files.
        removed: file of lines, one for each dropped document.
        reasons: dropped documents by reason.
        pairs: dropped documents by their source and that of the document that stays.
        leading: documents that stay in the place of others.
    """

    shards: tuple[AttributeShard, ...]
    removed: Intermediate | None
    reasons: dict[str, int]
    pairs: dict[str, int]
    leading: int


def write_group(task: WriteTask) -> WrittenGroup:
    """Write the verdicts on the documents of a group."""
    run = current_run()
    fates = [Fates(*load_columns(file)) for file in task.fates]
    shards: list[AttributeShard] = []
    lines: list[bytes] = []
    reasons: Counter[str] = Counter()
    pairs: Counter[str] = Counter()
    leading = 0
    for piece in task.group.pieces:
        table = _table(task, piece, fates)
        origin = task.group.origin_of(piece)
        shards.append(write_attributes(run.write, origin.pages, piece.shard, table, stem=_STEM, settings=task.settings))
        removed = present(table.column("reason"))
        leading += int(np.count_nonzero(present(table.column("cluster")) & ~removed))
        rows = table.filter(arrow_flags(removed)).drop_columns(["duplicate_of_row", "cluster"]).to_pylist()
        for row in rows:
            reasons[row["reason"]] += 1
            pairs[f"{piece.shard.source} of {row['duplicate_of_source']}"] += 1
            row["source"] = piece.shard.source
            lines.append(_ENCODER.encode(row).encode() + b"\n")
    total = task.group.stop - task.group.start
    dropped = dict(sorted(reasons.items()))
    run.account(Flow(unit="documents", read=total, kept=total - len(lines), dropped=dropped))
    return WrittenGroup(
        tuple(shards),
        run.store_intermediate("removed.jsonl", b"".join(lines)) if lines else None,
        dropped,
        dict(sorted(pairs.items())),
        leading,
    )


def _table(task: WriteTask, piece: Piece, fates: list[Fates]) -> pa.Table:
    origin = task.group.origin_of(piece)
    stop = piece.start + piece.shard.rows
    own = [found.rows((found.numbers >= piece.start) & (found.numbers < stop)) for found in fates]
    if origin.inside is None:
        ids = read_attributes(origin.signals, origin.pages, piece.shard, columns=("id",)).column("id")
        columns = {name: np.full(piece.shard.rows, None, object) for name in SCHEMA.names[1:]}
    else:
        before = read_attributes(origin.inside, origin.pages, piece.shard, columns=SCHEMA.names)
        if not any(len(found.numbers) for found in own):
            return before
        ids = before.column("id")
        columns = {name: np.array(before.column(name).to_pylist(), object) for name in SCHEMA.names[1:]}
    for found in own:
        released = found.numbers[found.kinds == RELEASED] - piece.start
        for column in columns.values():
            column[released] = None
    for found in own:
        _drop(columns, found.rows(found.kinds > KEPT), piece, task)
        leading = found.numbers[found.kinds == KEPT] - piece.start
        columns["cluster"][leading] = ids.take(arrow_rows(leading)).to_pylist()
    arrays = [ids, *(_column(columns[field.name].tolist(), field.type) for field in list(SCHEMA)[1:])]
    return pa.table(arrays, schema=SCHEMA)


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    return arrow_texts(values) if kind == pa.string() else arrow_numbers(values, kind)


def _drop(columns: dict[str, NDArray[Any]], dropped: Fates, piece: Piece, task: WriteTask) -> None:
    rows = dropped.numbers - piece.start
    shares: list[float] = np.round(dropped.shares, 4).tolist()
    kept = [document_id.decode() for document_id in dropped.ids.tolist()]
    columns["reason"][rows] = [REASONS[kind] for kind in dropped.kinds.tolist()]
    columns["duplicate_of"][rows] = columns["cluster"][rows] = kept
    columns["duplicate_of_source"][rows] = [task.sources[source] for source in dropped.sources.tolist()]
    columns["duplicate_of_row"][rows] = (dropped.keepers - _starts(dropped.keepers, task.origin_starts)).tolist()
    columns["containment"][rows] = [None if share != share else share for share in shares]


def _starts(numbers: Numbers, origin_starts: Sequence[int]) -> Numbers:
    """Number of the first document of the artifact of each document."""
    starts: Numbers = np.array(origin_starts, np.int64)
    return starts[np.searchsorted(starts, numbers, side="right") - 1]
