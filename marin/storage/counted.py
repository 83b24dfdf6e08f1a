"""A store that counts what it is asked."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from marin.storage.store import ObjectInfo, Page, Store
from marin.storage.writer import ChecksummedWriter


class CountedStore(Store):
    """Another store behind a counter.

    `requests` counts by kind: LIST (one a page; `folders` once), GET (`read`, and `open` once), HEAD (`size`), CREATE,
    PUT (`put`, and `writer` once) and DELETE. What a client sends behind one call (parts of a big object, ranges of a
    stream, another try) is not seen here. A copy that was pickled counts on its own, from the same figures.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.url = store.url
        self.requests: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def _count(self, kind: str) -> None:
        with self._lock:
            self.requests[kind] += 1

    def read(self, key: str) -> bytes:
        self._count("GET")
        return self.store.read(key)

    def open(self, key: str) -> BinaryIO:
        self._count("GET")
        return self.store.open(key)

    def create(self, key: str, data: bytes) -> None:
        self._count("CREATE")
        self.store.create(key, data)

    def put(self, key: str, data: bytes) -> None:
        self._count("PUT")
        self.store.put(key, data)

    def writer(self, key: str) -> ChecksummedWriter:
        self._count("PUT")
        return self.store.writer(key)

    def size(self, key: str) -> int | None:
        self._count("HEAD")
        return self.store.size(key)

    def list(self, prefix: str = "") -> list[ObjectInfo]:
        return sorted((info for page in self.pages(prefix) for info in page), key=lambda info: info.key)

    def pages(self, prefix: str = "") -> Iterator[Page]:
        pages = self.store.pages(prefix)
        while True:
            page = next(pages, None)
            if page is None:
                return
            self._count("LIST")
            yield page

    def folders(self, prefix: str = "") -> tuple[str, ...]:
        self._count("LIST")
        return self.store.folders(prefix)

    def delete(self, key: str) -> None:
        self._count("DELETE")
        self.store.delete(key)

    def url_of(self, key: str) -> str:
        return self.store.url_of(key)

    def sweep(self) -> None:
        self.store.sweep()

    def local_path(self, key: str) -> Path | None:
        return self.store.local_path(key)
