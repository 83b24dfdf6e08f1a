"""A store around another store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

from marin.storage.store import ObjectInfo, Page, Store
from marin.storage.writer import ChecksummedWriter

T = TypeVar("T")


class WrappedStore(Store):
    """Passes each operation on to another store, through `around`: the one place to count, repeat or break it.

    The self-test goes through these operations as well. `pages` does not pass through `around`, since an answer is
    a page and not the listing.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.url = store.url

    def around(self, kind: str, key: str, operation: Callable[[], T]) -> T:
        """Do the operation. `kind` is the method's name; `key` its key or prefix."""
        return operation()

    def read(self, key: str) -> bytes:
        return self.around("read", key, lambda: self.store.read(key))

    def read_range(self, key: str, begin: int, end: int) -> bytes:
        return self.around("read_range", key, lambda: self.store.read_range(key, begin, end))

    def open(self, key: str) -> BinaryIO:
        return self.around("open", key, lambda: self.store.open(key))

    def create(self, key: str, data: bytes) -> None:
        self.around("create", key, lambda: self.store.create(key, data))

    def put(self, key: str, data: bytes) -> None:
        self.around("put", key, lambda: self.store.put(key, data))

    def writer(self, key: str) -> ChecksummedWriter:
        return self.around("writer", key, lambda: self.store.writer(key))

    def size(self, key: str) -> int | None:
        return self.around("size", key, lambda: self.store.size(key))

    def list(self, prefix: str = "") -> list[ObjectInfo]:
        return self.around("list", prefix, lambda: self.store.list(prefix))

    def pages(self, prefix: str = "") -> Iterator[Page]:
        return self.store.pages(prefix)

    def folders(self, prefix: str = "") -> tuple[str, ...]:
        return self.around("folders", prefix, lambda: self.store.folders(prefix))

    def delete(self, key: str) -> None:
        self.around("delete", key, lambda: self.store.delete(key))

    def url_of(self, key: str) -> str:
        return self.store.url_of(key)

    def local_path(self, key: str) -> Path | None:
        return self.store.local_path(key)

    def sweep(self) -> None:
        self.store.sweep()
