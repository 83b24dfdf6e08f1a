"""Which records a prefix holds: by listing it, or by asking for single keys where that is less.

Record keys are created once and never written again, so their names alone answer whether a step is done. A plan reads
pages of the listing while it has read no more of them than it has steps, and asks for the rest key by key: a bucket
with a million old records must not slow down a run of twenty steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from marin.execution import layout
from marin.storage import ObjectInfo, Store

IN_FLIGHT = 64
"""Requests at the same time."""

StepKey = tuple[str, str]
"""(flat name, short identity)."""


@dataclass
class RecordIndex:
    """`generations`: the highest generation of each step that has a record; `tombstones`: generations without bytes.

    An index that `complete` does not call whole holds only the steps that were asked for.
    """

    generations: dict[StepKey, int] = field(default_factory=dict)
    tombstones: set[tuple[str, str, int]] = field(default_factory=set)
    complete: bool = True

    def add(self, info: ObjectInfo) -> None:
        """Take a listed object in; what is no record's key is passed over."""
        parsed = layout.parse_record_key(info.key)
        if parsed is None:
            return
        name, identity, generation, is_tombstone = parsed
        if is_tombstone:
            self.tombstones.add((name, identity, generation))
        elif generation > self.generations.get((name, identity), 0):
            self.generations[name, identity] = generation

    def generation(self, name: str, identity: str) -> int:
        """The highest generation of a step given by its plain name and whole identity; 0 without a record."""
        return self.generations.get((layout.flat(name), layout.short(identity)), 0)

    def is_tombstoned(self, name: str, identity: str, generation: int) -> bool:
        """Whether the bytes of that generation were removed on purpose."""
        return (layout.flat(name), layout.short(identity), generation) in self.tombstones


def list_records(store: Store) -> RecordIndex:
    """The index of a whole prefix."""
    index = RecordIndex()
    for page in store.pages(layout.RECORDS):
        for info in page:
            index.add(info)
    return index


def find_records(store: Store, steps: list[tuple[str, str]]) -> RecordIndex:
    """The index of a prefix, at least for these steps (name, identity).

    Reads as many pages of the listing as there are steps; what was not met by then is asked for by its key.
    """
    index = RecordIndex()
    pages: Iterator[list[ObjectInfo]] = store.pages(layout.RECORDS)
    for number, page in enumerate(pages):
        if number >= max(1, len(steps)):
            index = RecordIndex(complete=False)
            _ask(store, steps, index)
            return index
        for info in page:
            index.add(info)
    return index


def _ask(store: Store, steps: Iterable[tuple[str, str]], index: RecordIndex) -> None:
    """Look up each step: its first record, then later generations and tombstones of those that have one."""

    def look(step: tuple[str, str]) -> list[ObjectInfo]:
        name, identity = step
        found: list[ObjectInfo] = []
        generation = 1
        while (size := store.size(key := layout.record_key(name, identity, generation))) is not None:
            found.append(ObjectInfo(key, size))
            generation += 1
        for number in range(1, generation):
            key = layout.tombstone_key(name, identity, number)
            if (size := store.size(key)) is not None:
                found.append(ObjectInfo(key, size))
        return found

    with ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix="marin-index") as pool:
        for infos in pool.map(look, steps):
            for info in infos:
                index.add(info)
