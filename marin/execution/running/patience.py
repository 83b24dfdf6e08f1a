"""A store that is asked again when it gives no answer: the driver's own small requests outlast a store's bad minutes.

A worker's requests need no such thing: a step that meets a silent store is tried again as a whole.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from marin.storage import AlreadyExists, MissingObject, Page, Store, StoreUnavailable, StoreUnreachable, WrappedStore

T = TypeVar("T")

PATIENCE_SECONDS = 600.0
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 20.0


class PatientStore(WrappedStore):
    """Repeats what a store could not answer, with growing pauses, until `patience` seconds are over or `stopping`."""

    def __init__(self, store: Store, stopping: threading.Event, patience: float = PATIENCE_SECONDS) -> None:
        super().__init__(store)
        self._stopping = stopping
        self._patience = patience

    def around(self, kind: str, key: str, operation: Callable[[], T]) -> T:
        deadline = time.monotonic() + self._patience
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                return operation()
            except StoreUnreachable:  # said at once: whoever typed the address waits for it
                raise
            except StoreUnavailable:
                if time.monotonic() + pause > deadline or self._stopping.wait(pause * random.uniform(0.5, 1.0)):
                    raise
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def create(self, key: str, data: bytes) -> None:
        """Create an object; one that is found there after an unanswered try, with these very bytes, is ours."""
        unanswered = False

        def attempt() -> None:
            nonlocal unanswered
            try:
                self.store.create(key, data)
            except StoreUnavailable:
                unanswered = True
                raise
            except AlreadyExists:
                if not unanswered or not self._holds(key, data):
                    raise

        self.around("create", key, attempt)

    def _holds(self, key: str, data: bytes) -> bool:
        try:
            return self.store.read(key) == data
        except MissingObject:
            return False

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

        while (page := self.around("pages", prefix, turn)) is not None:
            yield page
