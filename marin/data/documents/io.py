"""Reading and writing document shards: parquet with zstd, in row groups of bounded size.

Imports pyarrow; import this module inside step bodies only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from types import TracebackType
from typing import IO, Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from marin.data.documents.artifacts import Documents, DocumentShard
from marin.data.documents.schema import COLUMNS, CONSOLIDATED_COLUMNS, Document

MIB = 1024**2

_TYPES: dict[str, pa.DataType] = {name: pa.string() for name in CONSOLIDATED_COLUMNS} | dict.fromkeys(
    ("quality", "topic"), pa.int16()
)
_NULLABLE = frozenset({"url", "language"})

SCHEMA = pa.schema([pa.field(name, _TYPES[name], nullable=name in _NULLABLE) for name in COLUMNS])
CONSOLIDATED_SCHEMA = pa.schema(
    [pa.field(name, _TYPES[name], nullable=name in _NULLABLE) for name in CONSOLIDATED_COLUMNS]
)

OpenFile = Callable[[str], AbstractContextManager[Any]]
"""Opens an output file by name, as ``current_run().write`` does."""


class DocumentWriter:
    """Writes the documents of one (source, split, quality, topic) into shards ``<stem>-00000.parquet``, ``-00001`` …

    A file is opened with its first document, so no shard is ever empty. Use as a context manager; ``shards`` is
    complete once the block has ended without an exception, otherwise no file of the block is finished.

    Args:
        open_file: opens an output file by name, such as ``current_run().write``.
        stem: start of the file names, unique within the step.
        source: source of all documents.
        split: split of all documents after consolidation, else ``""``.
        quality: quality bucket of all documents after consolidation, else -1.
        topic: topic of all documents after consolidation, else -1.
        consolidated: write the columns ``split``, ``quality`` and ``topic`` too.
        shard_bytes: text bytes after which the next file begins.
        row_group_bytes: text and metadata bytes after which a row group ends; what the writer holds in memory.
    """

    def __init__(
        self,
        open_file: OpenFile,
        stem: str,
        *,
        source: str,
        split: str = "",
        quality: int = -1,
        topic: int = -1,
        consolidated: bool = False,
        shard_bytes: int = 256 * MIB,
        row_group_bytes: int = 32 * MIB,
    ) -> None:
        self.shards: tuple[DocumentShard, ...] = ()
        self._open_file = open_file
        self._stem = stem
        self._labels = (source, split, quality, topic)
        self._schema = CONSOLIDATED_SCHEMA if consolidated else SCHEMA
        self._shard_bytes = shard_bytes
        self._row_group_bytes = row_group_bytes
        self._pending: list[Document] = []
        self._pending_bytes = 0
        self._file: _ShardFile | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._flush()
            self._finish()
        elif self._file is not None:
            self._file.abandon(kind, error, trace)
            self._file = None

    def write(self, document: Document) -> None:
        """Add one document. Its source, split, quality and topic are written as the writer's own."""
        self._pending.append(document)
        self._pending_bytes += _utf8_size(document.text) + _utf8_size(document.metadata)
        if self._pending_bytes >= self._row_group_bytes:
            self._flush()

    def write_table(self, table: pa.Table) -> None:
        """Add rows that are columns already, in order after the documents before them.

        Only the columns id, text, text_hash, url, language and metadata are read.
        """
        self._flush()
        for part in _split_by_bytes(table, self._row_group_bytes):
            self._append(self._with_labels(part))

    def _flush(self) -> None:
        if not self._pending:
            return
        columns = {
            name: [getattr(document, name) for document in self._pending]
            for name in ("id", "text", "text_hash", "url", "language", "metadata")
        }
        self._pending, self._pending_bytes = [], 0
        self._append(self._with_labels(pa.table({name: pa.array(v, _TYPES[name]) for name, v in columns.items()})))

    def _with_labels(self, table: pa.Table) -> pa.Table:
        labels = dict(zip(("source", "split", "quality", "topic"), self._labels, strict=True))
        columns = [
            pa.repeat(pa.scalar(labels[name], _TYPES[name]), table.num_rows)
            if name in labels
            else table.column(name).cast(_TYPES[name])
            for name in self._schema.names
        ]
        return pa.table(columns, schema=self._schema)

    def _append(self, table: pa.Table) -> None:
        if not table.num_rows:
            return
        if self._file is None:
            self._file = _ShardFile(self._open_file, f"{self._stem}-{len(self.shards):05d}.parquet", self._schema)
        self._file.append(table)
        if self._file.text_bytes >= self._shard_bytes:
            self._finish()

    def _finish(self) -> None:
        if self._file is None:
            return
        file, self._file = self._file, None
        file.close()
        source, split, quality, topic = self._labels
        self.shards += (
            DocumentShard(
                name=file.name,
                rows=file.rows,
                text_bytes=file.text_bytes,
                split=split,
                source=source,
                quality=quality,
                topic=topic,
            ),
        )


class _ShardFile:
    """One parquet file that is being written."""

    def __init__(self, open_file: OpenFile, name: str, schema: pa.Schema) -> None:
        self.name = name
        self.rows = 0
        self.text_bytes = 0
        self._stack = ExitStack()
        stream = self._stack.enter_context(open_file(name))
        self._writer = pq.ParquetWriter(stream, schema, compression="zstd", compression_level=3)

    def append(self, table: pa.Table) -> None:
        self._writer.write_table(table, row_group_size=table.num_rows)
        self.rows += table.num_rows
        self.text_bytes += _text_bytes(table)

    def close(self) -> None:
        with self._stack:
            self._writer.close()

    def abandon(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the file unfinished, as the exception leaves its stream."""
        with suppress(Exception):
            self._writer.close()
        self._stack.__exit__(kind, error, trace)


def documents_of(source: str | None, shards: Iterable[DocumentShard]) -> Documents:
    """The artifact over finished shards, with its totals."""
    shards = tuple(shards)
    return Documents(
        source=source,
        shards=shards,
        rows=sum(shard.rows for shard in shards),
        text_bytes=sum(shard.text_bytes for shard in shards),
    )


def iterate_documents(
    documents: Documents,
    *,
    columns: Sequence[str] | None = None,
    shards: Iterable[DocumentShard] | None = None,
    batch_rows: int = 256,
) -> Iterator[Document]:
    """Documents in stored order, streamed a row group at a time.

    Args:
        documents: a materialised artifact.
        columns: what to read; fields of other columns hold "" (-1 for quality and topic).
        shards: which shards, in this order; all when None.
        batch_rows: rows decoded at once.
    """
    blank = Document(id="", text="", text_hash="", source="")
    fields = tuple(name for name in CONSOLIDATED_COLUMNS if columns is None or name in columns)
    for shard in documents.shards if shards is None else shards:
        for batch in iterate_batches(documents, shard, columns=fields, batch_rows=batch_rows):
            names = batch.schema.names
            for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                row = dict(zip(names, values, strict=True))
                yield Document(**{name: row.get(name, getattr(blank, name)) for name in CONSOLIDATED_COLUMNS})


def iterate_batches(
    documents: Documents, shard: DocumentShard, *, columns: Sequence[str] | None = None, batch_rows: int = 1024
) -> Iterator[pa.RecordBatch]:
    """Arrow batches of one shard in stored order; columns that the shard lacks are left out."""
    with documents.open(shard.name) as stream:
        yield from _batches(stream, columns, batch_rows)


def read_shard(documents: Documents, shard: DocumentShard, *, columns: Sequence[str] | None = None) -> pa.Table:
    """One whole shard as a table; columns that the shard lacks are left out."""
    with documents.open(shard.name) as stream:
        file = pq.ParquetFile(stream)
        return file.read(columns=_present(file, columns))


def _batches(stream: IO[bytes], columns: Sequence[str] | None, batch_rows: int) -> Iterator[pa.RecordBatch]:
    file = pq.ParquetFile(stream)
    present = _present(file, columns)
    # Group by group: a batch that spans row groups holds all of them in memory.
    for group in range(file.num_row_groups):
        yield from file.iter_batches(batch_size=batch_rows, row_groups=[group], columns=present)


def _present(file: pq.ParquetFile, columns: Sequence[str] | None) -> list[str] | None:
    return None if columns is None else [name for name in columns if name in file.schema_arrow.names]


def _utf8_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _text_bytes(table: pa.Table) -> int:
    return int(pc.sum(pc.binary_length(table.column("text"))).as_py() or 0)


def _split_by_bytes(table: pa.Table, limit: int) -> Iterator[pa.Table]:
    """Slices of a table of about ``limit`` bytes of text and metadata, at least one row each."""
    sizes = pc.add(pc.binary_length(table.column("text")), pc.binary_length(table.column("metadata"))).to_pylist()
    start = filled = 0
    for row, size in enumerate(sizes):
        filled += size
        if filled >= limit:
            yield table.slice(start, row + 1 - start)
            start, filled = row + 1, 0
    if start < len(sizes):
        yield table.slice(start)
