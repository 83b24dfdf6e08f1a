"""Arrow columns of text and bytes as arrays of numbers, without an object for every value, and back.

The conversions of pyarrow import pandas, which takes longer than many a task.

Imports numpy and pyarrow; import this module inside step bodies only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def heads(column: pa.ChunkedArray, size: int) -> NDArray[np.uint8]:
    """The first bytes of each value [values, size], filled up with zeros; a null value is all zeros."""
    offsets, data = _buffers(column)
    if (np.diff(offsets) == size).all():
        return data[offsets[0] : offsets[-1]].reshape(-1, size)
    begins, ends = offsets[:-1, None], offsets[1:, None]
    places = begins + np.arange(size)
    inside = places < ends
    found: NDArray[np.uint8] = np.where(inside, data[np.where(inside, places, 0)], 0).astype(np.uint8)
    return found


def whole(column: pa.ChunkedArray) -> NDArray[Any]:
    """All values as bytes of one length, which sort like the text; a null value is empty."""
    offsets, _ = _buffers(column)
    size = int(np.diff(offsets).max(initial=1))
    return np.ascontiguousarray(heads(column, size)).view(f"S{size}").reshape(-1)


def words_of_64_bits(column: pa.ChunkedArray, count: int) -> NDArray[np.uint64]:
    """Values of ``count`` little-endian words each [values, count]; a null value is all zeros."""
    return np.ascontiguousarray(heads(column, 8 * count)).view("<u8").astype(np.uint64, copy=False)


def sizes(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Bytes of each value."""
    offsets, _ = _buffers(column)
    return np.diff(offsets)


def present(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Which values are not null."""
    if not column.null_count:
        return np.ones(len(column), bool)
    array = pa.concat_arrays(column.chunks)
    bits = np.unpackbits(np.frombuffer(array.buffers()[0], np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].astype(bool)


def integers(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Whole numbers; a null value is 0."""
    return np.where(present(column), _values(column.cast(pa.int64()), np.int64), 0)


def floats(column: pa.ChunkedArray) -> NDArray[np.float64]:
    """Numbers; a null value is NaN."""
    return np.where(present(column), _values(column.cast(pa.float64()), np.float64), np.nan)


def arrow_flags(flags: NDArray[np.bool_]) -> pa.BooleanArray:
    """Flags to filter a table by."""
    return pa.BooleanArray.from_buffers(pa.bool_(), len(flags), [None, _bits(flags)])


def arrow_rows(rows: NDArray[np.int64]) -> pa.Int64Array:
    """Row numbers to take from a table."""
    return pa.Int64Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(np.ascontiguousarray(rows))])


def arrow_texts(texts: Sequence[str | None]) -> pa.StringArray:
    """A column of texts."""
    encoded = [b"" if text is None else text.encode("utf-8", "replace") for text in texts]
    offsets = np.zeros(len(texts) + 1, np.int32)
    np.cumsum([len(one) for one in encoded], out=offsets[1:])
    known = _bits(np.array([text is not None for text in texts], bool))
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded)), known)


def arrow_numbers(numbers: Sequence[float | None], kind: pa.DataType) -> pa.Array:
    """A column of numbers of 64 bits."""
    values = np.array([0 if number is None else number for number in numbers], kind.to_pandas_dtype())
    known = _bits(np.array([number is not None for number in numbers], bool))
    return pa.Array.from_buffers(kind, len(values), [known, pa.py_buffer(values)])


def _bits(flags: NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def _values(column: pa.ChunkedArray, kind: type[Any]) -> NDArray[Any]:
    array = pa.concat_arrays(column.chunks or [pa.array([], column.type)])
    data = array.buffers()[1]
    found = np.frombuffer(data, kind) if data is not None and data.size else np.zeros(0, kind)
    return found[array.offset : array.offset + len(array)]


def _buffers(column: pa.ChunkedArray) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Where values begin and end, and the bytes of all of them."""
    array = pa.concat_arrays(column.cast(pa.large_binary()).chunks or [pa.array([], pa.large_binary())])
    _, offsets, data = array.buffers()
    if offsets is None:
        return np.zeros(1, np.int64), np.zeros(1, np.uint8)
    begins = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    # One byte more, so that an array without any can be looked into.
    return begins, np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
