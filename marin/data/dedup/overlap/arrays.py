"""Arrays as the bytes of an intermediate file: the same bytes for equal arrays."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def pack(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Named arrays as one file (the npz format, whose members have no date)."""
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, **arrays)
    return stream.getvalue()


def unpack(data: bytes) -> dict[str, NDArray[Any]]:
    """The arrays of a file."""
    with np.load(io.BytesIO(data), allow_pickle=False) as members:
        return {name: members[name] for name in members.files}


def pack_texts(texts: list[str]) -> dict[str, NDArray[Any]]:
    """Texts as two arrays: their bytes, and where each ends."""
    encoded = [text.encode() for text in texts]
    return {
        "texts": np.frombuffer(b"".join(encoded), np.uint8),
        "text_ends": np.cumsum(np.array([len(one) for one in encoded], np.int64)),
    }


def unpack_texts(arrays: Mapping[str, NDArray[Any]]) -> list[str]:
    """The texts of :func:`pack_texts`."""
    data, ends = arrays["texts"].tobytes(), arrays["text_ends"].tolist()
    return [data[begin:end].decode() for begin, end in zip([0, *ends[:-1]], ends, strict=True)] if ends else []
