"""Finding single rows in parquet shards: a column is read to find them, and the rest of their row groups only.

Imports pyarrow; import this module inside functions only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow.parquet as pq

from marin.execution import Artifact


def matching_rows(artifact: Artifact, name: str, column: str, matches: Callable[[Any], bool]) -> Iterator[int]:
    """Places of the rows of a parquet file whose value in a column matches; nothing but this column is read."""
    with artifact.open(name) as stream:
        file = pq.ParquetFile(stream)
        start = 0
        for group in range(file.num_row_groups):
            values = file.read_row_group(group, columns=[column]).column(column)
            yield from (start + at for at, value in enumerate(values.to_pylist()) if matches(value))
            start += len(values)


def read_row(artifact: Artifact, name: str, row: int, columns: Sequence[str] | None = None) -> dict[str, Any]:
    """One row of a parquet file, from its row group alone; columns that the file lacks are left out.

    Raises:
        IndexError: the file has fewer rows.
    """
    with artifact.open(name) as stream:
        file = pq.ParquetFile(stream)
        present = None if columns is None else [one for one in columns if one in file.schema_arrow.names]
        start = 0
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if row < start + rows:
                table = file.read_row_group(group, columns=present).slice(row - start, 1)
                values: dict[str, Any] = table.to_pylist()[0]
                return values
            start += rows
    raise IndexError(f"{name} has {start} rows, so there is no row {row}")
