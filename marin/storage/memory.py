"""`memory://`: objects of this process, for tests. Shared by every store of the process, and by no other process.

fsspec's memory files appear as soon as they are opened, and its readers share one position; here an object appears
when its writer is closed, and each reader has its own.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from typing import BinaryIO

from marin.storage.remote import RemoteStore
from marin.storage.store import AlreadyExists, Page, check_key
from marin.storage.writer import ChecksummedWriter

_lock = threading.RLock()


class MemoryStore(RemoteStore):
    """fsspec's memory file system, which threads must not use at once; its lock also makes the write conditional."""

    def read(self, key: str) -> bytes:
        with _lock:
            return super().read(key)

    def read_range(self, key: str, begin: int, end: int) -> bytes:
        with _lock:
            return super().read_range(key, begin, end)

    def put(self, key: str, data: bytes) -> None:
        with _lock:
            super().put(key, data)

    def size(self, key: str) -> int | None:
        with _lock:
            return super().size(key)

    def pages(self, prefix: str = "") -> Iterator[Page]:
        with _lock:
            found = [info for page in super().pages(prefix) for info in page]
        yield found

    def folders(self, prefix: str = "") -> tuple[str, ...]:
        with _lock:
            return super().folders(prefix)

    def delete(self, key: str) -> None:
        with _lock:
            super().delete(key)

    def open(self, key: str) -> BinaryIO:
        return io.BytesIO(self.read(key))

    def create(self, key: str, data: bytes) -> None:
        full = self._full(key)
        with _lock:
            if self.client.size(full) is not None:
                raise AlreadyExists(f"{self.url_of(key)} exists")
            self.client.put(full, data)

    def writer(self, key: str) -> ChecksummedWriter:
        buffer = io.BytesIO()
        return ChecksummedWriter(buffer, _MemoryCommit(self, check_key(key), buffer))


class _MemoryCommit:
    """Puts the buffer under its key."""

    def __init__(self, store: MemoryStore, key: str, buffer: io.BytesIO) -> None:
        self.store = store
        self.key = key
        self.buffer = buffer

    def finish(self) -> None:
        self.store.put(self.key, self.buffer.getvalue())

    def discard(self) -> None:
        self.buffer.close()
