"""A store that counts what it is asked."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from marin.storage.store import ObjectInfo, Page, Store
from marin.storage.wrapped import WrappedStore

T = TypeVar("T")

REQUESTS = {
    "read": "GET",
    "read_range": "GET",
    "open": "GET",
    "create": "CREATE",
    "put": "PUT",
    "writer": "PUT",
    "size": "HEAD",
    "folders": "LIST",
    "delete": "DELETE",
}


class CountedStore(WrappedStore):
    """Another store behind a counter.

    `requests` counts by kind: LIST (one a page; `folders` once), GET (`read`, `read_range`, and `open` once), HEAD
    (`size`), CREATE, PUT (`put`, and `writer` once) and DELETE. What a client sends behind one call (parts of a big
    object, ranges of a stream, another try) is not seen here. A copy that was pickled counts on its own, from the same
    figures.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.requests: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def counter_of(self, key: str) -> Counter[str]:
        """Where the requests for a key, or for the listing of a prefix, are counted."""
        return self.requests

    def _count(self, request: str, key: str) -> None:
        with self._lock:
            self.counter_of(key)[request] += 1

    def around(self, kind: str, key: str, operation: Callable[[], T]) -> T:
        self._count(REQUESTS[kind], key)
        return operation()

    def list(self, prefix: str = "") -> list[ObjectInfo]:
        return sorted((info for page in self.pages(prefix) for info in page), key=lambda info: info.key)

    def pages(self, prefix: str = "") -> Iterator[Page]:
        for page in super().pages(prefix):
            self._count("LIST", prefix)
            yield page
