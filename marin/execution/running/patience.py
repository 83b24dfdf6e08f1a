"""A store that is asked again when it gives no answer: the driver's own small requests outlast a store's bad minutes.

A worker's requests need no such thing: a step that meets a silent store is tried again as a whole.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

from marin.storage import (
    AlreadyExists,
    ChecksummedWriter,
    MissingObject,
    ObjectInfo,
    Store,
    StoreUnavailable,
    StoreUnreachable,
)
from marin.storage.store import Page

T = TypeVar("T")

PATIENCE_SECONDS = 600.0
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 20.0


class PatientStore(Store):
    """Repeats what a store could not answer, with growing pauses, until `patience` seconds are over or `stopping`."""

    def __init__(self, store: Store, stopping: threading.Event, patience: float = PATIENCE_SECONDS) -> None:
        self.store = store
        self.url = store.url
        self._stopping = stopping
        self._patience = patience

    def _ask(self, request: Callable[[], T]) -> T:
        deadline = time.monotonic() + self._patience
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                return request()
            except StoreUnreachable:  # said at once: whoever typed the address waits for it
                raise
            except StoreUnavailable:
                if time.monotonic() + pause > deadline or self._stopping.wait(pause * random.uniform(0.5, 1.0)):
                    raise
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def read(self, key: str) -> bytes:
        return self._ask(lambda: self.store.read(key))

    def open(self, key: str) -> BinaryIO:
        return self._ask(lambda: self.store.open(key))

    def create(self, key: str, data: bytes) -> None:
        """Create an object; one that is found there after an unanswered try, with these very bytes, is ours."""
        unanswered = False

        def request() -> None:
            nonlocal unanswered
            try:
                self.store.create(key, data)
            except StoreUnavailable:
                unanswered = True
                raise
            except AlreadyExists:
                if not unanswered or not self._holds(key, data):
                    raise

        self._ask(request)

    def _holds(self, key: str, data: bytes) -> bool:
        try:
            return self.store.read(key) == data
        except MissingObject:
            return False

    def put(self, key: str, data: bytes) -> None:
        self._ask(lambda: self.store.put(key, data))

    def writer(self, key: str) -> ChecksummedWriter:
        return self._ask(lambda: self.store.writer(key))

    def size(self, key: str) -> int | None:
        return self._ask(lambda: self.store.size(key))

    def list(self, prefix: str = "") -> list[ObjectInfo]:
        return self._ask(lambda: self.store.list(prefix))

    def pages(self, prefix: str = "") -> Iterator[Page]:
        """Page by page; after an unanswered one the listing begins again, so a page may come twice."""
        pages: Iterator[Page] | None = None

        def turn() -> Page | None:
            nonlocal pages
            pages = pages or self.store.pages(prefix)
            try:
                return next(pages, None)
            except StoreUnavailable:
                pages = None
                raise

        while (page := self._ask(turn)) is not None:
            yield page

    def folders(self, prefix: str = "") -> tuple[str, ...]:
        return self._ask(lambda: self.store.folders(prefix))

    def delete(self, key: str) -> None:
        self._ask(lambda: self.store.delete(key))

    def url_of(self, key: str) -> str:
        return self.store.url_of(key)

    def local_path(self, key: str) -> Path | None:
        return self.store.local_path(key)

    def check_writable(self) -> None:
        self._ask(self.store.check_writable)
