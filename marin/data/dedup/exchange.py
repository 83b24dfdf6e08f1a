"""Columns of numbers in the intermediate files of a step, dealt out to parts by hash.

Imports numpy; import this module inside step bodies only.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marin.execution import Intermediate, current_run

Hashes = NDArray[np.uint64]


def parts_for(size: int, part_size: int) -> int:
    """How many parts of at most this size there are, at least one."""
    return max(1, -(-size // part_size))


def store_columns(name: str, *columns: NDArray[Any]) -> Intermediate:
    """Leave arrays for a later part of the step."""
    stream = io.BytesIO()
    for column in columns:
        np.save(stream, column, allow_pickle=False)
    return current_run().store_intermediate(name, stream.getvalue())


def load_columns(file: Intermediate) -> list[NDArray[Any]]:
    """The arrays of an intermediate file.

    Raises:
        StepError: it is missing or damaged.
    """
    data = current_run().load_intermediate(file)
    stream = io.BytesIO(data)
    columns: list[NDArray[Any]] = []
    while stream.tell() < len(data):
        columns.append(np.load(stream, allow_pickle=False))
    return columns


def deal_out(stem: str, hashes: Hashes, parts: int, columns: Sequence[NDArray[Any]]) -> tuple[Intermediate | None, ...]:
    """Leave rows for the parts of a later map, by hash and in their order; None for a part without any.

    Args:
        stem: start of the file names.
        hashes: what decides the part of each row.
        parts: number of parts.
        columns: what is left of each row.
    """
    chosen = part_of(hashes, parts)
    order = np.argsort(chosen, kind="stable")
    ends = np.searchsorted(chosen[order], np.arange(parts), side="right")
    files: list[Intermediate | None] = []
    for part, rows in enumerate(np.split(order, ends[:-1])):
        files.append(store_columns(f"{stem}-{part:05d}.npy", *(c[rows] for c in columns)) if len(rows) else None)
    return tuple(files)


def part_of(hashes: Hashes, parts: int) -> NDArray[np.int64]:
    """The part of each hash."""
    # The upper half, since the order of rows within a part goes by the whole.
    return ((hashes >> np.uint64(32)) % np.uint64(parts)).astype(np.int64)


def gather(files: Iterable[Intermediate | None], kinds: Sequence[type[np.generic]]) -> list[NDArray[Any]]:
    """The rows of several files behind one another.

    Args:
        files: what was left; None is nothing.
        kinds: the kind of each column, for when there are no files.
    """
    found = [load_columns(file) for file in files if file is not None]
    return [
        np.concatenate([columns[at] for columns in found]) if found else np.zeros(0, kind)
        for at, kind in enumerate(kinds)
    ]
