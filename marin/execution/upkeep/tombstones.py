"""Taking the bytes of a committed step away and keeping its record: what was made from it stays valid.

The tombstone is created before the first byte goes, and a second call goes on where a first one was killed. A step
that needs the bytes later has them made again, as the next generation.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from dataclasses import dataclass

from marin.execution import layout
from marin.execution.codec import references
from marin.execution.failures import StepError
from marin.execution.planning.index import RecordIndex, StepKey
from marin.execution.planning.record_stream import stream_records
from marin.execution.records import Record
from marin.execution.upkeep.custody import Custodian
from marin.execution.upkeep.inventory import DATA_KEY
from marin.execution.upkeep.pins import pins_over
from marin.execution.upkeep.removal import remove_empty_folders, remove_objects
from marin.storage import AlreadyExists, ObjectInfo, Store


@dataclass(frozen=True)
class Burial:
    """What a tombstone would take: objects of the step that no other record lists; `shared` are bytes that stay since
    another record lists them, and `consumers` are the steps that were made from it."""

    record: Record
    objects: tuple[ObjectInfo, ...]
    shared: int
    consumers: tuple[str, ...]
    is_begun: bool

    @property
    def size(self) -> int:
        """Bytes that go."""
        return sum(info.size for info in self.objects)

    @property
    def step(self) -> StepKey:
        """The step."""
        return layout.flat(self.record.name), layout.short(self.record.identity)


def plan_tombstone(store: Store, record: Record) -> Burial:
    """What a tombstone over the step's newest record would take. Reads every record of the prefix.

    Raises `StepError` when the step is pinned, was adopted where its files lie, or another record cannot be read, so
    that it is not known which files it needs.
    """
    step = (layout.flat(record.name), layout.short(record.identity))
    for pin in pins_over(store, step):
        raise StepError(f"{record.display} is pinned ({pin.text}); take the pin off first: marin unpin {pin.argument}")
    if record.provenance.get("adopted", {}).get("by") == "reference":
        raise StepError(
            f"the files of {record.display} were adopted where they lie ({store.url_of(record.path)}), so they are "
            "yours to remove"
        )
    index = RecordIndex()
    others = []
    for page in store.pages(layout.RECORDS):
        for info in page:
            index.add(info)
            if info.key.endswith(layout.RECORD_SUFFIX) and info.key != record.key:
                others.append(info.key)
    newest = index.generation(record.name, record.identity)
    if newest != record.generation:
        raise StepError(
            f"{record.display} has an earlier generation {record.generation} than {newest}, which answers: marin gc "
            "removes it"
        )
    listed: set[str] = set()
    consumers = []
    for _, other in stream_records(store, others):
        if not isinstance(other, Record):
            raise StepError(f"{other}. Which files it lists is not known, so none is removed")
        if not index.is_tombstoned(other.name, other.identity, other.generation):
            listed.update(file.key for file in other.files)
        is_newest = index.generation(other.name, other.identity) == other.generation
        if is_newest and _reads(other, record):
            consumers.append(other.display)
    mine = {file.key: file.size for file in record.files if store.exists(file.key)}
    for folder in folders_of(store, record):
        for info in store.list(folder):
            match = DATA_KEY.match(info.key)
            if match is not None and match["id"] == step[1]:
                mine[info.key] = info.size
    objects = tuple(ObjectInfo(key, size) for key, size in sorted(mine.items()) if key not in listed)
    shared = sum(size for key, size in mine.items() if key in listed)
    begun = index.is_tombstoned(record.name, record.identity, record.generation)
    return Burial(record, objects, shared, tuple(sorted(consumers)), begun)


def _reads(consumer: Record, record: Record) -> bool:
    """Whether a step was made from another, or its result refers to it."""
    return any(one.identity == record.identity for one in consumer.dependencies) or any(
        one["$artifact"] == record.key for one in references(consumer.result)
    )


def folders_of(store: Store, record: Record) -> list[str]:
    """The folders of a step, one for each label that it ever had."""
    found = store.folders(record.name)
    end = layout.short(record.identity)
    return [f"{record.name}/{folder}" for folder in found if folder == end or folder.endswith(f"-{end}")]


def bury(store: Store, burial: Burial, note: str = "") -> list[str]:
    """Put the tombstone up, then remove the bytes; returns what could not be removed, with the cause.

    Raises `StepError` naming the run that holds the step and lives.
    """
    record = burial.record
    body = {
        "record": record.key,
        "objects": len(burial.objects),
        "size": burial.size,
        "host": socket.gethostname(),
        "time": round(time.time(), 3),
        "note": note,
    }
    folder = layout.step_folder(record.name, record.label, record.identity)
    after = record.generation + 1
    with Custodian(store) as custodian, custodian.held(record.name, record.identity, after, folder):
        if store.exists(layout.record_key(record.name, record.identity, after)):
            raise StepError(f"{record.display} was made again meanwhile; look at it once more")
        key = layout.tombstone_key(record.name, record.identity, record.generation)
        with contextlib.suppress(AlreadyExists):  # put up by a call that did not come to its end
            store.create(key, json.dumps(body, ensure_ascii=False).encode())
        _, failed = remove_objects(store, burial.objects)
        if not failed:
            remove_empty_folders(store, folders_of(store, record))
    return failed
