"""Records read many at a time, each once, within a number of requests."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from marin.execution.failures import StepError
from marin.execution.records import Record, load_record
from marin.storage import Store

AT_ONCE = 16
"""Requests at the same time."""

Place = tuple[Store, str]
"""Where a record lies: its store and its key."""


class RecordReader:
    """Keeps the records that it read. Once `most` records were asked for it reads no more.

    A record that is not there or is damaged is not found; `damaged` says which, and why. A store that gives no answer
    raises `StoreError`.
    """

    def __init__(self, most: int | None = None) -> None:
        self.left = most
        self.damaged: dict[str, str] = {}
        self._found: dict[tuple[str, str], Record | None] = {}

    def read(self, places: Iterable[Place]) -> None:
        """Read the records that were not read before, as far as the number of requests allows."""
        wanted = {(store.url, key): store for store, key in places if (store.url, key) not in self._found}
        keys = list(wanted) if self.left is None else list(wanted)[: self.left]
        if not keys:
            return
        if self.left is not None:
            self.left -= len(keys)
        with ThreadPoolExecutor(min(AT_ONCE, len(keys)), thread_name_prefix="marin-read") as pool:
            for key, record in zip(keys, pool.map(lambda key: self._load(wanted[key], key[1]), keys), strict=True):
                self._found[key] = record

    def get(self, place: Place) -> Record | None:
        """A record that was read, or None."""
        return self._found.get((place[0].url, place[1]))

    def was_read(self, place: Place) -> bool:
        """Whether the record was asked for, whatever came of it."""
        return (place[0].url, place[1]) in self._found

    def _load(self, store: Store, key: str) -> Record | None:
        try:
            return load_record(store, key)
        except StepError as error:
            self.damaged[key] = str(error)
            return None
