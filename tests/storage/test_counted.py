"""The counter of requests."""

from __future__ import annotations

import contextlib
import pickle
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from marin.storage import AlreadyExists, CountedStore, ObjectInfo, open_store
from marin.storage.local import LocalStore
from marin.storage.store import Page


class Paged(LocalStore):
    """A store that lists two objects at a time."""

    def pages(self, prefix: str = "") -> Iterator[Page]:
        infos = self.list(prefix)
        yield from (infos[start : start + 2] for start in range(0, len(infos), 2))


def test_each_kind_of_request_is_counted_and_answered_by_the_store_behind(tmp_path: Path) -> None:
    store = CountedStore(open_store(tmp_path))
    store.create("a", b"1")
    with contextlib.suppress(AlreadyExists):
        store.create("a", b"2")
    store.put("b", b"2")
    with store.writer("c") as stream:
        stream.write(b"345")
    assert (store.read("a"), store.open("c").read(), store.size("c")) == (b"1", b"345", 3)
    assert store.list() == [ObjectInfo("a", 1), ObjectInfo("b", 1), ObjectInfo("c", 3)]
    store.delete("c")
    assert not store.exists("c")
    assert store.requests == Counter(CREATE=2, PUT=2, GET=2, HEAD=2, LIST=1, DELETE=1)
    assert (store.url, store.url_of("a"), store.local_path("a")) == (str(tmp_path), f"{tmp_path}/a", tmp_path / "a")


def test_the_self_test_of_a_store_is_counted_too(tmp_path: Path) -> None:
    store = CountedStore(open_store(tmp_path))
    store.check_writable()
    assert store.requests == Counter(CREATE=2, DELETE=1)


def test_only_the_pages_that_were_asked_for_are_counted(tmp_path: Path) -> None:
    store = CountedStore(Paged(tmp_path))
    for number in range(5):
        store.create(f"k{number}", b"")
    pages = store.pages()
    assert [info.key for info in next(pages)] == ["k0", "k1"]
    assert store.requests["LIST"] == 1
    assert len(store.list()) == 5
    assert store.requests["LIST"] == 4


def test_a_counted_store_pickles_and_counts_on_in_each_copy(tmp_path: Path) -> None:
    store = CountedStore(open_store(tmp_path))
    store.create("a", b"1")
    copy = pickle.loads(pickle.dumps(store))
    assert copy.read("a") == b"1"
    assert copy.requests == Counter(CREATE=1, GET=1)
    assert store.requests == Counter(CREATE=1)


def test_requests_of_many_threads_are_all_counted(tmp_path: Path) -> None:
    store = CountedStore(open_store(tmp_path))
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: store.size(f"k{number}"), range(2000)))
    assert store.requests["HEAD"] == 2000
