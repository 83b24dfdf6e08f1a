"""What earlier runs left under `_runs/`: their plans, and what their events say became of each step.

Runs are history for people. Whether a step is done is never asked of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from marin.execution import layout
from marin.execution.failures import StepError
from marin.execution.planning.reading import AT_ONCE
from marin.execution.running.claims import HOLDER_FIELDS, Holder
from marin.storage import MissingObject, Store

PLAN = "plan.json"


@dataclass(frozen=True)
class PlanEntry:
    """A step in the plan of a run. `generation` is that of the record that answered, or that the run was to make.

    `recipe` is its identity document, kept for steps that had no record.
    """

    name: str
    label: str | None
    identity: str
    generation: int
    path: str
    action: str
    reason: str
    upstream: tuple[str, ...]
    recipe: Mapping[str, Any] | None = None

    @property
    def display(self) -> str:
        """The step as people call it."""
        return f"{self.name}-{layout.short(self.identity)}" + (f" ({self.label})" if self.label else "")


@dataclass(frozen=True)
class Event:
    """A line of a run's events: what happened, when in seconds since 1970, and all that the run said of it."""

    kind: str
    time: float
    facts: Mapping[str, Any]

    @property
    def text(self) -> str:
        """What the run said."""
        return str(self.facts.get("text", ""))


@dataclass(frozen=True)
class PastRun:
    """A run as its objects tell it. `latest` holds the newest event of each step, by identity."""

    name: str
    entries: Mapping[str, PlanEntry]
    started: Event | None
    finished: Event | None
    latest: Mapping[str, Event]
    logs: tuple[str, ...]

    @property
    def holder(self) -> Holder | None:
        """The run's process."""
        if self.started is None or not set(HOLDER_FIELDS) <= set(self.started.facts):
            return None
        return Holder(**{field: self.started.facts[field] for field in HOLDER_FIELDS})

    def logs_of(self, name: str, identity: str) -> list[str]:
        """Keys of the logs of a step's attempts."""
        start = f"{layout.run_folder(self.name)}/logs/{layout.flat(name)}-{layout.short(identity)}-"
        return [key for key in self.logs if key.startswith(start)]


def run_names(store: Store) -> tuple[str, ...]:
    """Every run of a prefix, oldest first: names begin with the time of the start."""
    return store.folders(layout.RUNS)


def find_run(store: Store, what: str) -> str:
    """The one run that a name, or the start or end of one, means; `StepError` when it is none or many."""
    names = run_names(store)
    hits = [name for name in names if what == name] or [
        name for name in names if len(what) >= 4 and (name.startswith(what) or name.endswith(what))
    ]
    if len(hits) == 1:
        return hits[0]
    shown = ", ".join((hits or names)[-8:]) or "none"
    raise StepError(
        f"{store.url} has {'no run' if not hits else f'{len(hits)} runs'} {what!r}; "
        f"{'the newest are' if not hits else 'they are'} {shown}"
    )


def read_plan(store: Store, run: str) -> dict[str, PlanEntry]:
    """The plan of a run by identity, in its order; empty when the run left none."""
    key = f"{layout.run_folder(run)}/{PLAN}"
    try:
        body = json.loads(store.read(key))
        return {entry["identity"]: _entry(entry) for entry in body["steps"]}
    except MissingObject:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        raise StepError(f"{key} cannot be read ({type(error).__name__}: {error}); it may be removed") from error


def _entry(body: Mapping[str, Any]) -> PlanEntry:
    return PlanEntry(
        body["name"],
        body["label"],
        body["identity"],
        body["generation"],
        body["path"],
        body["action"],
        body["reason"],
        tuple(body["upstream"]),
        body.get("recipe"),
    )


def read_run(store: Store, run: str) -> PastRun:
    """Everything that a run left; `StepError` when there is no such run."""
    folder = layout.run_folder(run)
    keys = [info.key for info in store.list(folder)]
    if not keys:
        raise StepError(f"there is no run {run!r} in {store.url}")
    segments = [key for key in keys if key.startswith(f"{folder}/events-")]
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="marin-read") as pool:
        plan = pool.submit(read_plan, store, run)
        texts = zip(segments, pool.map(store.read, segments), strict=True)
        events = [event for key, text in texts for event in _events(key, text)]
    steps = {event.facts["identity"]: event for event in events if event.kind.startswith("step.")}
    runs = {event.kind: event for event in events if event.kind.startswith("run.")}
    logs = tuple(key for key in keys if key.startswith(f"{folder}/logs/"))
    return PastRun(run, plan.result(), runs.get("run.started"), runs.get("run.finished"), steps, logs)


def _events(key: str, data: bytes) -> Iterator[Event]:
    try:
        for line in data.decode().splitlines():
            body = json.loads(line)
            yield Event(body.pop("event"), float(body.pop("time")), body)
    except (ValueError, KeyError, TypeError) as error:
        raise StepError(f"{key} cannot be read ({type(error).__name__}: {error}); it may be removed") from error


def newest_plans(store: Store, most: int, before: str | None = None) -> dict[str, dict[str, PlanEntry]]:
    """By run, the plans of the newest runs, or of the newest that started before the run `before`; newest first."""
    newest = [name for name in run_names(store) if before is None or name < before][-most:][::-1]
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="marin-read") as pool:
        return dict(zip(newest, pool.map(lambda run: read_plan(store, run), newest), strict=True))


def counterparts(plan: Iterable[PlanEntry], steps: Iterable[tuple[str, str | None, str]]) -> dict[str, PlanEntry]:
    """For steps (name, label, identity) of a graph in its order, the step of an earlier plan that had their place.

    The first of a name and label stands for the first, the second for the second: a changed setting leaves the form of
    a graph as it is. Steps that are in the earlier plan themselves have none.
    """
    places: dict[tuple[str, str | None], list[PlanEntry]] = {}
    for entry in plan:
        places.setdefault((entry.name, entry.label), []).append(entry)
    found: dict[str, PlanEntry] = {}
    at: dict[tuple[str, str | None], int] = {}
    for name, label, identity in steps:
        number = at.get((name, label), 0)
        at[name, label] = number + 1
        entries = places.get((name, label), [])
        if number < len(entries) and entries[number].identity != identity:
            found[identity] = entries[number]
    return found
