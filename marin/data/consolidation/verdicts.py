"""What is known of each document of a shard before texts are read: one row a document, in its order.

Imports pyarrow; import this module inside step bodies only.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from marin.data.consolidation.config import LicenceConfig, Policy
from marin.data.consolidation.decide import TAKEDOWN, filter_reason, judges_again
from marin.data.consolidation.places import Place
from marin.data.consolidation.takedown import TakedownList
from marin.data.documents.attributes import read_attributes
from marin.data.documents.io import iterate_batches
from marin.data.documents.licences import licence_of

VERDICTS = pa.schema(
    {
        "id": pa.string(),
        "reason": pa.string(),
        "why": pa.string(),
        "copy": pa.string(),
        "duplicate_of": pa.string(),
        "clustered": pa.bool_(),
        "contaminated": pa.bool_(),
        "language": pa.string(),
        "score": pa.float64(),
        "quality": pa.int16(),
        "topic": pa.int16(),
    }
)
"""``reason``: why the document is dropped for what it is itself, whatever becomes of others; ``why`` says more of it.
``copy``: why it is a duplicate; ``clustered``: whether it may be a copy, or others may be copies of it."""

_BATCH_ROWS = 1024


def judge(place: Place, policy: Policy, takedowns: TakedownList) -> pa.Table:
    """The verdicts on a shard.

    Holds the columns of one shard, and as Python objects 1024 documents at most.
    """
    again = judges_again(policy)
    signals = read_attributes(
        place.signals, place.pages, place.shard, columns=None if again else ("id", "reason", "language")
    )
    copies = read_attributes(place.duplicates, place.pages, place.shard, columns=("reason", "duplicate_of", "cluster"))
    overlaps = read_attributes(place.contamination, place.pages, place.shard, columns=("reason",))
    grades = read_attributes(place.cells, place.pages, place.shard, columns=("score", "quality", "topic"))
    named, why = _named(place, policy.licence, takedowns)
    filtered = _filtered(signals.drop_columns(["bands", "content"]), policy) if again else signals.column("reason")
    clusters = copies.column("cluster") if "cluster" in copies.column_names else copies.column("reason").fill_null("")
    found = {
        "id": signals.column("id"),
        "reason": pc.coalesce(named, _plain(filtered, pa.string())),
        "why": why,
        "copy": copies.column("reason"),
        "duplicate_of": copies.column("duplicate_of"),
        "clustered": pc.is_valid(clusters),
        "contaminated": pc.is_valid(overlaps.column("reason")),
        "language": signals.column("language"),
        "score": grades.column("score"),
        "quality": grades.column("quality"),
        "topic": grades.column("topic"),
    }
    return pa.table([_plain(found[field.name], field.type) for field in VERDICTS], schema=VERDICTS)


def pack(table: pa.Table) -> bytes:
    """A table as the bytes of an intermediate file."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def unpack(data: bytes) -> pa.Table:
    """What `pack` packed, each column in one piece."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all().combine_chunks()


def _named(place: Place, licence: LicenceConfig, takedowns: TakedownList) -> tuple[pa.Array, pa.Array]:
    """Why documents must go by name or licence, and more of it: the entry's reason, or the licence."""
    if licence.is_open and not takedowns.entries:
        return pa.nulls(place.shard.rows, pa.string()), pa.nulls(place.shard.rows, pa.string())
    default = licence.default_of(place.shard.source)
    columns = ("id", *(("url",) if takedowns.needs_urls else ()), *(() if licence.is_open else ("metadata",)))
    reasons: list[pa.Array] = []
    whys: list[pa.Array] = []
    for batch in iterate_batches(place.pages, place.shard, columns=columns, batch_rows=_BATCH_ROWS):
        pairs = [
            _reason_of(row["id"], row.get("url"), row.get("metadata"), default, licence, takedowns)
            for row in batch.to_pylist()
        ]
        reasons.append(pa.array([reason for reason, _ in pairs], pa.string()))
        whys.append(pa.array([why for _, why in pairs], pa.string()))
    return _joined(reasons), _joined(whys)


def _reason_of(
    document_id: str,
    url: str | None,
    metadata: str | None,
    default: str,
    licence: LicenceConfig,
    takedowns: TakedownList,
) -> tuple[str | None, str | None]:
    entry = takedowns.find(document_id, url)
    if entry is not None:
        return TAKEDOWN, entry.reason
    if licence.is_open:
        return None, None
    name = licence_of(metadata or "", default)
    reason = licence.reason(name)
    return reason, name if reason == "licence_other" else None


def _filtered(signals: pa.Table, policy: Policy) -> pa.Array:
    return _joined(
        pa.array([filter_reason(row, policy) for row in batch.to_pylist()], pa.string())
        for batch in signals.to_batches(max_chunksize=_BATCH_ROWS)
    )


def _joined(parts: Iterable[pa.Array]) -> pa.Array:
    found = list(parts)
    return pa.concat_arrays(found) if found else pa.nulls(0, pa.string())


def _plain(column: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """A column in one piece, of a type."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return whole if whole.type == kind else whole.cast(kind)
