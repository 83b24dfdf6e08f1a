"""What a collection would remove from a prefix: everything that nothing kept needs. Reads only; `sweep` removes.

Roots are pins, young and live runs, what experiments plan, and what was made or adopted lately. From them the records
are followed upwards. What is left over goes: steps that nothing reaches, generations that a later one supersedes, and
objects that no record lists. A claim that is at work keeps all of its step.
"""

from __future__ import annotations

import calendar
import enum
import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from marin.execution import layout
from marin.execution.planning.index import StepKey
from marin.execution.planning.reading import AT_ONCE
from marin.execution.upkeep.inventory import DataObject, Inventory, StepObjects, take_inventory
from marin.execution.upkeep.roots import Books, LastClaim, Marks, Roots, Rules, find_roots, last_claim, mark, read_books
from marin.storage import MissingObject, ObjectInfo, Store


class Reason(enum.Enum):
    """Why an object goes."""

    unreachable = "nothing that is kept needs it"
    superseded = "a later generation answers"
    litter = "no record lists it"
    abandoned = "unfinished, and nothing asks for it"
    run = "an old run"
    index = "leads to no record"
    external = "of an outside input that nothing kept reads"


@dataclass
class Removal:
    """What goes of one step: records and their tombstones from the lowest generation up, then data, then the rest.

    `newest` is the generation that answered when the prefix was listed, `epoch` the newest claim's and
    `folder` the step's folder by that claim. An `exclusive` removal takes something that a
    run could go on from or hit, so the step is claimed before.
    """

    step: StepKey
    newest: int
    epoch: int
    folder: str = ""
    exclusive: bool = False
    records: list[tuple[Reason, ObjectInfo]] = field(default_factory=list)
    data: list[tuple[Reason, ObjectInfo]] = field(default_factory=list)
    content: list[tuple[Reason, ObjectInfo]] = field(default_factory=list)
    rest: list[tuple[Reason, ObjectInfo]] = field(default_factory=list)
    claims: list[tuple[Reason, ObjectInfo]] = field(default_factory=list)

    def objects(self) -> Iterator[tuple[Reason, ObjectInfo]]:
        """Everything that goes."""
        for part in (self.content, self.records, self.data, self.rest, self.claims):
            yield from part

    @property
    def name(self) -> str:
        """The step's name, as people write it."""
        return layout.unflat(self.step[0])

    @property
    def display(self) -> str:
        """The step, as people call it."""
        return f"{self.name}-{self.step[1]}"


@dataclass
class Collection:
    """A collection that may be carried out: removals by step, old runs, and entries of indices that lead nowhere.

    `kept_back` says of steps that would go why they stay for now. `marks` are what is kept, and `planned` the steps
    that experiments plan.
    """

    rules: Rules
    planned: Mapping[StepKey, str]
    inventory: Inventory
    books: Books
    roots: Roots
    marks: Marks
    removals: list[Removal] = field(default_factory=list)
    runs: dict[str, list[ObjectInfo]] = field(default_factory=dict)
    index: list[tuple[Reason, ObjectInfo]] = field(default_factory=list)
    kept_back: list[str] = field(default_factory=list)

    def totals(self) -> dict[tuple[str, Reason], tuple[int, int]]:
        """(objects, bytes) by what people call the place and by reason."""
        found: dict[tuple[str, Reason], tuple[int, int]] = defaultdict(lambda: (0, 0))
        for name, reason, info in self.objects():
            count, size = found[name, reason]
            found[name, reason] = (count + 1, size + info.size)
        return dict(found)

    def objects(self) -> Iterator[tuple[str, Reason, ObjectInfo]]:
        """Everything that goes: (step name or folder, reason, object)."""
        for removal in self.removals:
            for reason, info in removal.objects():
                yield removal.name, reason, info
        for infos in self.runs.values():
            for info in infos:
                yield layout.RUNS, Reason.run, info
        for reason, info in self.index:
            yield info.key.partition("/")[0], reason, info


def plan_collection(store: Store, rules: Rules, planned: Mapping[StepKey, str] | None = None) -> Collection:
    """What a collection would remove. `planned` are steps that experiments plan, each with why it is kept.

    Raises `StepError` when a pin, a plan or a record that must be followed is damaged: nothing may go while it is not
    known what is needed.
    """
    planned = planned or {}
    inventory = take_inventory(store)
    books = read_books(store, inventory)
    roots = find_roots(store, inventory, books, rules, planned)
    marks = mark(inventory, books, roots.steps, roots.live)
    collection = Collection(rules, planned, inventory, books, roots, marks)
    beats: dict[str, float] = {}
    wanted = [(step, objects) for step, objects in inventory.steps.items() if step not in roots.live]
    drafts = [(step, objects, removal) for step, objects in wanted if (removal := _draft(step, objects, collection))]

    def look(draft: tuple[StepKey, StepObjects, Removal]) -> LastClaim:
        return last_claim(store, draft[0], draft[1], rules, beats)

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="marin-claims") as pool:
        claims = list(pool.map(look, drafts))
    for (step, objects, removal), claim in zip(drafts, claims, strict=True):
        _settle(collection, removal, objects, claim, step in marks.steps)
    collection.runs = {run: infos for run, infos in inventory.runs.items() if run not in roots.runs}
    _add_content(store, collection)
    _add_externals(store, collection)
    return collection


def _draft(step: StepKey, objects: StepObjects, collection: Collection) -> Removal | None:
    """What would go of a step if its claim allows it; None when nothing would."""
    if step in collection.marks.steps:
        return _draft_of_kept(step, objects, collection.books, collection.marks)
    newest = objects.records.get(objects.newest)
    if newest is not None and newest.key in collection.books.damaged:
        collection.kept_back.append(f"{collection.books.damaged[newest.key]}: what it is made of stays")
        return None
    reason = Reason.unreachable if objects.records else Reason.abandoned
    removal = Removal(step, objects.newest, objects.epoch, exclusive=True)
    removal.records = [(reason, info) for info in _in_order(objects, sorted({*objects.records, *objects.tombstones}))]
    kept = collection.marks.files
    removal.data = [(reason, _info(data)) for data in objects.data if data.key not in kept]
    removal.rest = [(reason, info) for info in objects.failures]
    removal.claims = [(reason, info) for epoch in sorted(objects.claims) for info in objects.claims[epoch]]
    return removal


def _draft_of_kept(step: StepKey, objects: StepObjects, books: Books, marks: Marks) -> Removal | None:
    """Superseded generations of a step that is kept, and what no record of it lists.

    State of epochs after the record's, or of a step without a record, may still be gone on from, so it stays.
    """
    removal = Removal(step, objects.newest, objects.epoch)
    newest = books.newest(step, objects)
    gone = [
        generation
        for generation in sorted({*objects.records, *objects.tombstones})
        if (info := objects.records.get(generation)) is None or info.key not in marks.records
    ]
    removal.records = [(Reason.superseded, info) for info in _in_order(objects, gone)]
    superseded = {
        file
        for generation in gone
        if generation in objects.records
        if (facts := books.facts.get(objects.records[generation].key)) is not None
        for file in facts.files
    }
    for data in objects.data:
        if data.key in marks.files:
            continue
        if data.key in superseded:
            removal.data.append((Reason.superseded, _info(data)))
        elif data.epoch is None or (newest is not None and data.epoch <= newest.epoch):
            removal.data.append((Reason.litter, _info(data)))
    return removal if removal.records or removal.data else None


def _in_order(objects: StepObjects, generations: Iterable[int]) -> list[ObjectInfo]:
    """Each record before its tombstone: a record without bytes must never stand alone."""
    return [
        part[generation]
        for generation in generations
        for part in (objects.records, objects.tombstones)
        if generation in part
    ]


def _info(data: DataObject) -> ObjectInfo:
    return ObjectInfo(data.key, data.size)


def _settle(collection: Collection, removal: Removal, objects: StepObjects, claim: LastClaim, is_kept: bool) -> None:
    """Take a draft over as far as the step's newest claim allows."""
    removal.folder = claim.folder
    age = collection.rules.now - claim.shown
    if claim.is_open:
        collection.kept_back.append(f"{removal.display}: run {claim.run or 'unknown'} has it")
        return
    if age < collection.rules.grace:
        if not is_kept and not objects.records:
            collection.kept_back.append(f"{removal.display}: unfinished, and was at work {age / 3600:.1f} h ago")
            return
        removal.data = [(reason, info) for reason, info in removal.data if reason is not Reason.litter]
        removal.claims = []
    if any(True for _ in removal.objects()):
        collection.removals.append(removal)


def _add_content(store: Store, collection: Collection) -> None:
    """Entries of the content index whose record goes, is not there, or has no bytes any more."""
    going = {info.key: removal for removal in collection.removals for _, info in removal.records}
    entries = collection.inventory.content
    for info, body in zip(entries, read_json(store, entries), strict=True):
        key = str(body.get("record", ""))
        if key in going:
            going[key].content.append((going[key].records[0][0], info))
        elif not collection.books.knows(key) or _is_tombstoned(collection.inventory, key):
            collection.index.append((Reason.index, info))


def _is_tombstoned(inventory: Inventory, record: str) -> bool:
    parsed = layout.parse_record_key(record)
    return parsed is not None and parsed[2] in inventory.step((parsed[0], parsed[1])).tombstones


def _add_externals(store: Store, collection: Collection) -> None:
    """What is known of outside inputs whose version no kept record has in its config, once it is old."""
    used = {version for key in collection.marks.records for version in collection.books.facts[key].versions}
    entries = collection.inventory.externals
    for info, body in zip(entries, read_json(store, entries), strict=True):
        version, seen = body.get("version"), _seconds(body.get("time"))
        if version is not None and version not in used and collection.rules.now - seen > collection.rules.keep:
            collection.index.append((Reason.external, info))


def _seconds(text: Any) -> float:
    """Seconds since 1970 of a time as entries hold it; the far future for another form."""
    try:
        return float(calendar.timegm(time.strptime(str(text), "%Y-%m-%d %H:%M:%S UTC")))
    except ValueError:
        return float("inf")


def read_json(store: Store, infos: Sequence[ObjectInfo]) -> list[dict[str, Any]]:
    """The JSON objects under keys; an empty one for what is not there or no such thing."""

    def look(info: ObjectInfo) -> dict[str, Any]:
        try:
            body = json.loads(store.read(info.key))
        except (MissingObject, ValueError):
            return {}
        return body if isinstance(body, dict) else {}

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="marin-index") as pool:
        return list(pool.map(look, infos))
