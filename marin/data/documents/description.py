"""What parquet files of documents hold, found by reading them.

Imports pyarrow; import this module inside functions only.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from marin.data.documents.artifacts import Documents, DocumentShard
from marin.data.documents.io import CONSOLIDATED_SCHEMA, SCHEMA, documents_of
from marin.data.documents.schema import FATES
from marin.execution import Artifact, StepError

_LABELS = ("source", "split", "quality", "topic")


def describe_documents(files: Artifact) -> Documents:
    """The artifact over an artifact's parquet files, in the order of their names; empty ones and fates are
    left out.

    Raises:
        StepError: there is no parquet file, or one is none of documents: a column is missing or of another type, a
            required value is null, ids stand twice, or a shard holds several sources, splits, qualities or topics.
    """
    names = [name for name in files.names("*.parquet") if f"/{FATES}" not in f"/{name}"]
    if not names:
        raise StepError("there is no parquet file, so there are no documents; shards of documents are called *.parquet")
    shards = [shard for name in names if (shard := describe_shard(files, name)) is not None]
    sources = {shard.source for shard in shards}
    return documents_of(sources.pop() if len(sources) == 1 else None, shards)


def describe_shard(files: Artifact, name: str) -> DocumentShard | None:
    """One file as a shard, or None when it has no rows; raises as `describe_documents`."""
    with files.open(name) as stream:
        try:
            file = pq.ParquetFile(stream)
            _check_schema(name, file.schema_arrow)
            labels = [column for column in _LABELS if column in file.schema_arrow.names]
            seen: dict[str, set[object]] = {column: set() for column in labels}
            ids: set[str] = set()
            rows = text_bytes = 0
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, columns=[*SCHEMA.names, *labels[1:]])
                _check_nulls(name, table)
                rows += table.num_rows
                text_bytes += int(pc.sum(pc.binary_length(table.column("text"))).as_py() or 0)
                ids.update(table.column("id").to_pylist())
                for column in labels:
                    seen[column].update(pc.unique(table.column(column)).to_pylist())
        except pa.ArrowException as error:
            raise StepError(f"{name} is no whole parquet file: {str(error).splitlines()[0]}") from error
    if not rows:
        return None
    if len(ids) != rows:
        raise StepError(f"{name}: {rows - len(ids)} ids of {rows} documents stand twice; an id is unique")
    for column, values in seen.items():
        if len(values) > 1:
            raise StepError(f"{name}: the column {column} has {len(values)} values; a shard has one, so split the file")
    label = {column: next(iter(values)) for column, values in seen.items()}
    return DocumentShard(
        name=name,
        rows=rows,
        text_bytes=text_bytes,
        split=str(label.get("split", "")),
        source=str(label["source"]),
        quality=int(str(label.get("quality", -1))),
        topic=int(str(label.get("topic", -1))),
    )


def _check_schema(name: str, schema: pa.Schema) -> None:
    for field in SCHEMA:
        if field.name not in schema.names:
            raise StepError(f"{name} has no column {field.name}; documents have {', '.join(SCHEMA.names)}")
    for field in CONSOLIDATED_SCHEMA:
        if field.name in schema.names and schema.field(field.name).type != field.type:
            found = schema.field(field.name).type
            raise StepError(f"{name}: the column {field.name} is of type {found}; documents have {field.type} there")


def _check_nulls(name: str, table: pa.Table) -> None:
    for field in SCHEMA:
        if not field.nullable and table.column(field.name).null_count:
            raise StepError(f"{name}: the column {field.name} has {table.column(field.name).null_count} nulls")
