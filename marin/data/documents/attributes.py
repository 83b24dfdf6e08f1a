"""Reading and writing attribute files: rows beside the documents of one shard, in the same order.

Imports pyarrow; import this module inside step bodies only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from marin.data.documents.artifacts import Attributes, AttributeShard, Documents, DocumentShard
from marin.data.documents.io import OpenFile

_SETTINGS = b"marin.settings"


def write_attributes(
    open_file: OpenFile,
    documents: Documents,
    shard: DocumentShard,
    table: pa.Table,
    *,
    stem: str = "attributes",
    settings: Mapping[str, str] | None = None,
) -> AttributeShard:
    """Write the attributes of one document shard.

    Args:
        open_file: opens an output file by name, such as ``current_run().write``.
        documents: the artifact that holds the shard.
        shard: the document shard.
        table: columns ``id``, ``reason`` (null where the document is kept) and any flat columns, one row a document, in
            the document shard's order.
        stem: folder of the file names.
        settings: what the columns were made with, where a reader has to know it; see `settings_of`.

    Raises:
        ValueError: a column is missing, or the number of rows differs from that of the document shard.
    """
    missing = {"id", "reason"} - set(table.column_names)
    if missing:
        raise ValueError(f"attributes of shard {shard.name!r} lack the columns {sorted(missing)}")
    if table.num_rows != shard.rows:
        raise ValueError(f"attributes of shard {shard.name!r} have {table.num_rows} rows; the shard has {shard.rows}")
    name = f"{stem}/{documents.identity[:10]}/{shard.name}"
    if settings is not None:
        told = json.dumps(dict(settings), sort_keys=True)
        table = table.replace_schema_metadata({**(table.schema.metadata or {}), _SETTINGS: told})
    with open_file(name) as stream:
        pq.write_table(table, stream, compression="zstd")
    return AttributeShard(name=name, document_shard=shard.name, rows=table.num_rows, documents=documents.identity)


def attributes_of(kind: str, shards: Iterable[AttributeShard]) -> Attributes:
    """The artifact over finished attribute shards."""
    shards = tuple(shards)
    return Attributes(kind=kind, shards=shards, rows=sum(shard.rows for shard in shards))


def read_attributes(
    attributes: Attributes, documents: Documents, shard: DocumentShard, *, columns: Iterable[str] | None = None
) -> pa.Table:
    """The attributes of one document shard, row for row.

    Raises:
        KeyError: the shard was never annotated.
        ValueError: the file does not have the shard's number of rows.
    """
    found = attributes.shard_of(documents, shard)
    with attributes.open(found.name) as stream:
        table = pq.ParquetFile(stream).read(columns=None if columns is None else list(columns))
    if table.num_rows != shard.rows:
        raise ValueError(
            f"{attributes.kind} file {found.name!r} has {table.num_rows} rows for the {shard.rows} of {shard.name!r}"
        )
    return table


def settings_of(attributes: Attributes) -> dict[str, str] | None:
    """What the columns were made with, as the first file tells it; None without files.

    Raises:
        ValueError: the file does not tell.
    """
    if not attributes.shards:
        return None
    name = attributes.shards[0].name
    with attributes.open(name) as stream:
        told = (pq.read_schema(stream).metadata or {}).get(_SETTINGS)
    if told is None:
        raise ValueError(f"{attributes.kind} file {name!r} does not tell what it was made with; make it again")
    settings: dict[str, str] = json.loads(told)
    return settings
