"""Which records a prefix holds, by listing and by asking."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from marin.execution import layout
from marin.execution.planning.index import find_records, list_records
from marin.storage import CountedStore, ObjectInfo, Store, open_store


@pytest.fixture
def store() -> Store:
    return open_store(f"memory://{uuid.uuid4().hex}")


class Paged(CountedStore):
    """A store that lists three objects a page, as an object store lists a thousand."""

    def pages(self, prefix: str = "") -> Iterator[list[ObjectInfo]]:
        found = self.store.list(prefix)
        for start in range(0, max(1, len(found)), 3):
            self.requests["LIST"] += 1
            yield found[start : start + 3]


def identity(number: int) -> str:
    return f"{number:064x}"[::-1]


def fill(store: Store, steps: int, name: str = "other/step") -> None:
    for number in range(steps):
        store.put(layout.record_key(name, identity(number)), b"{}")


def test_the_highest_generation_answers_and_tombstones_are_known(store: Store) -> None:
    for generation in (1, 2, 10):
        store.put(layout.record_key("a/b", identity(1), generation), b"{}")
    store.put(layout.tombstone_key("a/b", identity(1), 2), b"{}")
    store.put("_steps/README.txt", b"not a record")
    index = list_records(store)
    assert index.generation("a/b", identity(1)) == 10
    assert index.generation("a/b", identity(2)) == 0
    assert index.is_tombstoned("a/b", identity(1), 2)
    assert not index.is_tombstoned("a/b", identity(1), 10)
    assert index.complete


def test_a_tombstone_alone_is_no_record(store: Store) -> None:
    store.put(layout.tombstone_key("a/b", identity(1)), b"{}")
    assert list_records(store).generation("a/b", identity(1)) == 0


def test_a_plan_of_few_steps_on_a_full_prefix_reads_few_pages_and_asks_for_its_own_keys(store: Store) -> None:
    fill(store, 300)
    wanted = [("z/mine", identity(number)) for number in range(5)]
    store.put(layout.record_key("z/mine", identity(0)), b"{}")
    for generation in (1, 2):
        store.put(layout.record_key("z/mine", identity(3), generation), b"{}")
    store.put(layout.tombstone_key("z/mine", identity(3), 2), b"{}")
    paged = Paged(store)
    index = find_records(paged, wanted)
    assert paged.requests["LIST"] == 6  # as many as steps, and the one that showed that there are more
    assert paged.requests["HEAD"] == 5 + 2 + 1 + 3  # first records, the next generations, the tombstones
    assert [index.generation(*step) for step in wanted] == [1, 0, 0, 2, 0]
    assert index.is_tombstoned("z/mine", identity(3), 2)
    assert not index.complete


def test_both_ways_find_the_same(store: Store) -> None:
    fill(store, 40)
    for number in range(0, 40, 7):
        store.put(layout.record_key("other/step", identity(number), 2), b"{}")
        store.put(layout.tombstone_key("other/step", identity(number), 1), b"{}")
    wanted = [("other/step", identity(number)) for number in range(3, 50)]
    listed, asked = find_records(store, wanted), find_records(Paged(store), wanted[:4])
    for name, one in wanted[:4]:
        assert listed.generation(name, one) == asked.generation(name, one)
        for generation in (1, 2):
            assert listed.is_tombstoned(name, one, generation) == asked.is_tombstoned(name, one, generation)


def test_a_plan_of_many_steps_lists_all_pages_and_asks_for_nothing(store: Store) -> None:
    fill(store, 30)
    paged: Any = Paged(store)
    index = find_records(paged, [("other/step", identity(number)) for number in range(30)])
    assert paged.requests == {"LIST": 10}
    assert len(index.generations) == 30
