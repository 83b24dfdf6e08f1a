"""Verdicts on the documents of a group of shards, as attribute files and as lines for people.

Imports numpy and pyarrow; import this module inside step bodies only.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marin.data.dedup.columns import present
from marin.data.dedup.config import DedupConfig
from marin.data.dedup.exchange import load_columns
from marin.data.dedup.keys import KEPT, REASONS
from marin.data.dedup.places import Group, Piece, Places
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


@dataclass(frozen=True)
class WriteTask:
    """A group whose verdicts are written. Pickles.

    Attributes:
        places: all documents.
        group: the group.
        fates: files of `Fates` of its documents.
        settings: what the verdicts were made with.
        config: what counts as a copy.
    """

    places: Places
    group: Group
    fates: tuple[Intermediate, ...]
    settings: dict[str, str]
    config: DedupConfig


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
        origin = task.places.origins[piece.origin]
        shards.append(write_attributes(run.write, origin.pages, piece.shard, table, stem=_STEM, settings=task.settings))
        removed = present(table.column("reason"))
        leading += int(np.count_nonzero(present(table.column("cluster")) & ~removed))
        for row in table.filter(pa.array(removed)).to_pylist():
            reasons[row["reason"]] += 1
            pairs[f"{piece.shard.source} of {row['duplicate_of_source']}"] += 1
            told = {name: value for name, value in row.items() if name != "duplicate_of_row"}
            line = json.dumps({**told, "source": piece.shard.source}, ensure_ascii=False, sort_keys=True)
            lines.append(line.encode() + b"\n")
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
    origin = task.places.origins[piece.origin]
    ids = read_attributes(origin.signals, origin.pages, piece.shard, columns=("id",)).column("id").to_pylist()
    if origin.inside is None:
        columns: dict[str, list[Any]] = {name: [None] * len(ids) for name in SCHEMA.names}
    else:
        names = [name for name in SCHEMA.names if name != "id"]
        columns = read_attributes(origin.inside, origin.pages, piece.shard, columns=names).to_pydict()
    columns["id"] = ids
    stop = piece.start + piece.shard.rows
    own = [found.rows((found.numbers >= piece.start) & (found.numbers < stop)) for found in fates]
    for found in own:
        for row in (found.numbers[found.kinds == RELEASED] - piece.start).tolist():
            for name in SCHEMA.names[1:]:
                columns[name][row] = None
    for found in own:
        _drop(columns, found.rows(found.kinds > KEPT), piece, task.places)
        for row in (found.numbers[found.kinds == KEPT] - piece.start).tolist():
            columns["cluster"][row] = ids[row]
    return pa.table([pa.array(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA)


def _drop(columns: dict[str, list[Any]], dropped: Fates, piece: Piece, places: Places) -> None:
    shares: NDArray[np.float64] = np.round(dropped.shares, 4)
    rows = zip(*(column.tolist() for column in (*dropped.columns()[:4], shares, dropped.ids)), strict=True)
    for number, kind, keeper, source, share, keeper_id in rows:
        row = number - piece.start
        columns["reason"][row] = REASONS[kind]
        columns["duplicate_of"][row] = columns["cluster"][row] = keeper_id.decode()
        columns["duplicate_of_source"][row] = places.sources[source]
        columns["duplicate_of_row"][row] = places.row_of(keeper)
        columns["containment"][row] = None if share != share else share
