"""What a collection keeps: the roots that people and runs set, and all that records say they were made from."""

from __future__ import annotations

import calendar
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from marin.execution import layout
from marin.execution.codec import references
from marin.execution.failures import StepError
from marin.execution.planning.index import StepKey
from marin.execution.planning.reading import AT_ONCE
from marin.execution.planning.record_stream import stream_records
from marin.execution.records import Record
from marin.execution.running.claims import HOLDER_FIELDS, Holder, process_is_gone
from marin.execution.upkeep.inventory import Inventory, StepObjects
from marin.execution.upkeep.pins import RUN, all_pins, planned_by
from marin.storage import MissingObject, Store

DAY = 86_400.0
HOUR = 3_600.0
LIVE_SECONDS = 2 * HOUR
"""A run that has not said its end may live as long as its heartbeat is younger: clocks of machines differ."""


@dataclass(frozen=True)
class Rules:
    """How old things must be to go, in seconds: runs with what they made, and litter. `now` is since 1970."""

    keep: float = 14 * DAY
    grace: float = 24 * HOUR
    now: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        for name in ("keep", "grace"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is a time in seconds that is not negative, got {getattr(self, name)}")


@dataclass(frozen=True)
class Facts:
    """What a collection needs to know of a record.

    `identities` are short: all that the recipe names as made from. `versions` are those in its config, among them
    those of external inputs.
    """

    step: StepKey
    generation: int
    above: tuple[StepKey, ...]
    identities: tuple[str, ...]
    references: tuple[str, ...]
    files: tuple[str, ...]
    versions: tuple[str, ...]
    finished: float
    epoch: int
    is_adopted: bool


def facts_of(step: StepKey, record: Record) -> Facts:
    """The facts of a record; whatever it names is named by flat name and short identity."""
    provenance = record.provenance
    return Facts(
        step,
        record.generation,
        tuple((layout.flat(one.name), layout.short(one.identity)) for one in record.dependencies),
        tuple(layout.short(identity) for _, identity in record.recipe["dependencies"]),
        tuple(one["$artifact"] for one in references(record.result) if "$prefix" not in one),
        tuple(file.key for file in record.files),
        tuple(versions_in(record.recipe["config"])),
        float(provenance.get("finished", 0.0)),
        int(provenance.get("epoch", 0)),
        "adopted" in provenance,
    )


def versions_in(config: Any) -> Iterator[str]:
    """Every text under a key `version` in a recipe's config."""
    stack = [config]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            if isinstance(value.get("version"), str):
                yield value["version"]
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)


@dataclass(frozen=True)
class Books:
    """The facts of every record of a prefix by its key, and what is wrong with those that cannot be read."""

    facts: Mapping[str, Facts]
    damaged: Mapping[str, str]

    def knows(self, key: str) -> bool:
        """Whether there is a record under the key, damaged or not."""
        return key in self.facts or key in self.damaged

    def newest(self, step: StepKey, objects: StepObjects) -> Facts | None:
        """The facts of the record that answers, if there is one that can be read."""
        info = objects.records.get(objects.newest)
        return self.facts.get(info.key) if info is not None else None


def read_books(store: Store, inventory: Inventory) -> Books:
    """Read every record of a prefix. One that is gone since the prefix was listed is taken out of the inventory."""
    places = {key: (step, generation) for step, generation, key in inventory.records()}
    facts: dict[str, Facts] = {}
    damaged: dict[str, str] = {}
    for key, record in stream_records(store, places):
        step, generation = places[key]
        try:
            facts[key] = facts_of(step, _sound(record))
        except (StepError, KeyError, TypeError, ValueError, AttributeError) as error:
            if store.exists(key):
                damaged[key] = str(error) if isinstance(error, StepError) else f"the record {key} is damaged ({error})"
            else:
                del inventory.steps[step].records[generation]
    return Books(facts, damaged)


def _sound(record: Record | StepError) -> Record:
    if isinstance(record, StepError):
        raise record
    return record


@dataclass
class Roots:
    """What is kept before any record is followed. `steps` says why; `live` are steps of runs that go on, of which
    nothing at all is removed; `runs` are the runs whose folder stays."""

    steps: dict[StepKey, str] = field(default_factory=dict)
    live: set[StepKey] = field(default_factory=set)
    runs: set[str] = field(default_factory=set)

    def add(self, steps: Iterable[StepKey], why: str) -> None:
        """Keep steps; the first reason stays."""
        for step in steps:
            self.steps.setdefault(step, why)


def find_roots(store: Store, inventory: Inventory, books: Books, rules: Rules, planned: Mapping[StepKey, str]) -> Roots:
    """The roots of a prefix: what experiments plan (`planned`, with why), pins, young and live runs, what was made or
    adopted lately, and what was adopted at any time, since no run can make it again."""
    roots = Roots()
    roots.add(planned, "")
    roots.steps.update(planned)
    add_pins(store, roots)
    for run, lives in kept_runs(store, inventory, rules):
        add_run(store, roots, run, lives)
    answers = (books.newest(step, objects) for step, objects in inventory.steps.items())
    for facts in (one for one in answers if one is not None):
        if facts.is_adopted:
            roots.add([facts.step], "adopted")
        elif rules.now - facts.finished <= rules.keep:
            roots.add([facts.step], "made lately")
    return roots


def kept_runs(store: Store, inventory: Inventory, rules: Rules) -> list[tuple[str, bool]]:
    """(run, whether it may still live) of the runs that are young or live, or whose names are none of ours."""

    def look(run: str) -> tuple[bool, float]:
        if run_started(run) is None:
            return False, 0.0
        return run_state(store, run, [info.key for info in inventory.runs[run]], rules.now)

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="marin-runs") as pool:
        states = list(pool.map(look, inventory.runs))
    return [
        (run, lives) for run, (lives, age) in zip(inventory.runs, states, strict=True) if lives or age <= rules.keep
    ]


def add_pins(store: Store, roots: Roots) -> None:
    """Keep what is pinned."""
    for pin in all_pins(store):
        if pin.kind == RUN:
            roots.runs.add(pin.name)
            roots.add(planned_by(store, pin.name), f"pinned run {pin.name}")
        else:
            roots.add([(pin.name, pin.identity)], "pinned")


def add_run(store: Store, roots: Roots, run: str, lives: bool) -> None:
    """Keep a run and the steps of its plan."""
    roots.runs.add(run)
    steps = planned_by(store, run)
    roots.add(steps, f"run {run}")
    if lives:
        roots.live.update(steps)


def run_started(run: str) -> float | None:
    """When a run started, in seconds since 1970, by its name; None for a name of another form."""
    try:
        return float(calendar.timegm(time.strptime(run[:15], "%Y%m%dT%H%M%S")))
    except ValueError:
        return None


def last_beat(store: Store, run: str) -> float:
    """The time of a run's last heartbeat in seconds since 1970 by its own clock, or 0."""
    try:
        return float(json.loads(store.read(layout.beat_key(run)))["time"])
    except MissingObject:
        return 0.0
    except (ValueError, KeyError, TypeError):
        return 0.0


def run_state(store: Store, run: str, keys: list[str], now: float) -> tuple[bool, float]:
    """(whether a run may still live, seconds since it last showed itself)."""
    beat = last_beat(store, run)
    age = now - max(beat, run_started(run) or 0.0)
    return age <= LIVE_SECONDS and not _said_its_end(store, keys), age


def _said_its_end(store: Store, keys: list[str]) -> bool:
    segments = sorted(key for key in keys if key.rpartition("/")[2].startswith("events-"))
    try:
        return bool(segments) and b'"run.finished"' in store.read(segments[-1])
    except MissingObject:  # another collection has removed the run
        return True


@dataclass
class Marks:
    """What a closure reached: steps, the records that must stay, and the objects that these list."""

    steps: set[StepKey] = field(default_factory=set)
    records: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)


def mark(
    inventory: Inventory, books: Books, starts: Iterable[StepKey], live: Iterable[StepKey] = (), *, strict: bool = True
) -> Marks:
    """Follow the records from the starts: what they were made from, and what their results refer to.

    The newest record of a step stays, every record that a result refers to, and all records of a live step. Raises
    `StepError` when a record that must be followed is damaged: what it needs is not known then. If not `strict`, it is
    passed over.
    """
    marks = Marks()
    by_identity: dict[str, list[StepKey]] = {}
    for step in inventory.steps:
        by_identity.setdefault(step[1], []).append(step)
    keep_all = set(live)
    stack: list[tuple[StepKey, str | None]] = [(step, None) for step in (*starts, *keep_all)]
    while stack:
        step, key = stack.pop()
        objects = inventory.steps.get(step)
        if objects is None:
            continue
        if step not in marks.steps:
            marks.steps.add(step)
            generations = objects.records if step in keep_all else {objects.newest} & set(objects.records)
            stack.extend((step, objects.records[generation].key) for generation in generations)
        if key is None or key in marks.records:
            continue
        marks.records.add(key)
        if key in books.damaged and not strict:
            continue
        if key in books.damaged:
            raise StepError(
                f"{books.damaged[key]}. What it was made from is not known, so nothing is collected: redo its step, or "
                "leave out what asks for it"
            )
        facts = books.facts[key]
        if facts.generation not in objects.tombstones:  # else what is left of its bytes is to go
            marks.files.update(facts.files)
        stack.extend((above, None) for above in facts.above)
        stack.extend((above, None) for identity in facts.identities for above in by_identity.get(identity, ()))
        for reference in facts.references:
            parsed = layout.parse_record_key(reference)
            if parsed is not None:
                stack.append(((parsed[0], parsed[1]), reference if books.knows(reference) else None))
    return marks


@dataclass(frozen=True)
class LastClaim:
    """The newest claim of a step: whether it is at work as far as can be seen, when its run last showed itself, and the
    folder that it works in."""

    is_open: bool
    shown: float
    run: str
    folder: str = ""


def last_claim(store: Store, step: StepKey, objects: StepObjects, rules: Rules, beats: dict[str, float]) -> LastClaim:
    """Read the newest claim of a step. A claim that cannot be read counts as open and made just now."""
    if objects.epoch == 0:
        return LastClaim(False, 0.0, "")
    try:
        body = json.loads(store.read(layout.claim_key(*step, objects.epoch)))
        holder = Holder(**{name: body[name] for name in HOLDER_FIELDS})
        generation, shown, folder = int(body["generation"]), float(body["time"]), str(body["folder"])
    except (MissingObject, ValueError, KeyError, TypeError):
        return LastClaim(True, rules.now, "")
    if holder.run not in beats:
        beats[holder.run] = last_beat(store, holder.run)
    shown = max(shown, beats[holder.run])
    ended = objects.is_released or generation <= objects.newest or process_is_gone(holder)
    return LastClaim(not ended and rules.now - shown <= max(rules.grace, LIVE_SECONDS), shown, holder.run, folder)
