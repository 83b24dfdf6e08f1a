"""Fates: for every document that came in, a row that says what became of it, in files beside the clean documents.

Row n of ``fates/<documents>/<shard>`` belongs to row n of that shard of pages.

Imports pyarrow; import this module inside step bodies only.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from marin.data.documents.artifacts import Documents, DocumentShard
from marin.data.documents.io import OpenFile
from marin.data.documents.schema import FATES
from marin.execution import StepError

_NAMES = pa.dictionary(pa.int32(), pa.string())

FATES_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("reason", _NAMES),
        pa.field("why", pa.string()),
        pa.field("split", _NAMES),
        pa.field("quality", pa.int16()),
        pa.field("topic", pa.int16()),
        pa.field("bundle", pa.int32()),
        pa.field("cut_characters", pa.int64()),
        pa.field("left_characters", pa.int64()),
    ]
)
"""``reason`` is null where the document stayed; ``why`` names the document that stands in for a copy, or the reason on
the takedown list; ``split``, ``quality``, ``topic`` and ``bundle`` say in which files of clean documents it lies, and
``cut_characters`` how much of its text was cut, ``left_characters`` how much is repeated and stays, since no document
of its split that is kept holds the text instead."""

ROWS = pa.schema([field.with_type(pa.string()) if field.type == _NAMES else field for field in FATES_SCHEMA])
"""The same with plain names, as rows are collected."""


def fates_name(documents: Documents, shard: DocumentShard) -> str:
    """File of the fates of one shard of pages."""
    return f"{FATES}{documents.identity[:10]}/{shard.name}"


def write_fates(open_file: OpenFile, documents: Documents, shard: DocumentShard, rows: Sequence[pa.Table]) -> None:
    """Write the fates of one shard, given as tables of `ROWS`.

    Raises:
        StepError: there is not one row for each document.
    """
    table = pa.concat_tables([ROWS.empty_table(), *rows]).combine_chunks()
    if table.num_rows != shard.rows:
        raise StepError(f"{table.num_rows} fates for the {shard.rows} documents of {shard.name!r}")
    columns = [
        column.combine_chunks().dictionary_encode() if field.type == _NAMES else column
        for column, field in zip(table.columns, FATES_SCHEMA, strict=True)
    ]
    with open_file(fates_name(documents, shard)) as stream:
        pq.write_table(pa.table(columns, schema=FATES_SCHEMA), stream, compression="zstd")
