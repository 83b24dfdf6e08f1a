"""A stream over a remote object, read by ranges."""

from __future__ import annotations

from typing import Any, cast

from fsspec.spec import AbstractBufferedFile

AHEAD_BYTES = 4 * 2**20
"""What is read beyond what is asked for."""


class RangedFile(AbstractBufferedFile):  # type: ignore[misc]
    """A seekable stream whose ranges are read, and asked for again in trouble, as whole objects are."""

    def __init__(self, fs: Any, path: str, size: int) -> None:
        super().__init__(fs, path, "rb", block_size=AHEAD_BYTES, cache_type="readahead", size=size)

    def _fetch_range(self, start: int, end: int) -> bytes:
        return cast(bytes, self.fs.cat_file(self.path, start=start, end=end))
