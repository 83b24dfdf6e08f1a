"""Fates: for every document that came in, a row that says what became of it, in files beside the clean documents.

Row n of ``fates/<documents>/<shard>`` belongs to row n of that shard of pages.

Imports pyarrow; import this module inside step bodies only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from marin.data.documents.artifacts import Documents, DocumentShard
from marin.data.documents.io import OpenFile
from marin.data.documents.schema import FATES
from marin.execution import StepError

FATES_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("reason", pa.dictionary(pa.int32(), pa.string())),
        pa.field("why", pa.string()),
        pa.field("split", pa.dictionary(pa.int32(), pa.string())),
        pa.field("quality", pa.int16()),
        pa.field("topic", pa.int16()),
        pa.field("bundle", pa.int32()),
    ]
)
"""``reason`` is null where the document stayed; ``why`` names the document that stands in for a copy, or the reason on
the takedown list; ``split``, ``quality``, ``topic`` and ``bundle`` say in which files of clean documents it lies."""


def fates_name(documents: Documents, shard: DocumentShard) -> str:
    """File of the fates of one shard of pages."""
    return f"{FATES}{documents.identity[:10]}/{shard.name}"


def write_fates(
    open_file: OpenFile, documents: Documents, shard: DocumentShard, rows: Sequence[dict[str, Any]]
) -> None:
    """Write the fates of one shard.

    Raises:
        StepError: there is not one row for each document.
    """
    if len(rows) != shard.rows:
        raise StepError(f"{len(rows)} fates for the {shard.rows} documents of {shard.name!r}")
    with open_file(fates_name(documents, shard)) as stream:
        pq.write_table(pa.Table.from_pylist(list(rows), schema=FATES_SCHEMA), stream, compression="zstd")
