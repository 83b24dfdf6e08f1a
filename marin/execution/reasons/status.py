"""What is going on in a prefix: steps at work, failed and blocked, and how far the newest run is.

Few requests however many records there are: listings of records, claims and failures, and reads of what is shown.
"""

from __future__ import annotations

import calendar
import json
import re
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from marin.execution import layout
from marin.execution.planning.index import RecordIndex, StepKey, list_records
from marin.execution.planning.plan import Action
from marin.execution.planning.reading import AT_ONCE
from marin.execution.reasons.failure_history import FailureKey, PastFailure, parse_failure_key, read_failure
from marin.execution.reasons.past_runs import Event, PastRun, PlanEntry, read_run, run_names
from marin.execution.running.claims import HOLDER_FIELDS, Holder, process_is_gone
from marin.storage import MissingObject, Store

FAILURES = 20
"""Failures that are read unless all are asked for, newest first."""
RUNS = 4
"""Newest runs among which one with a plan is looked for."""
SILENT_BEATS = 4
"""Heartbeats of which nothing was seen, after which a run is called silent."""
SUCCEEDED = "succeeded"
CLAIM_KEY = re.compile(rf"{layout.CLAIMS}/([a-z0-9_.]+)-([0-9a-f]{{10}})/(\d+)\.(json|released)")

Item = TypeVar("Item")
Found = TypeVar("Found")


@dataclass(frozen=True)
class Beat:
    """A run's heartbeat: its holder's clock when it was written, and the seconds between two of them."""

    time: float
    period: float

    @property
    def age(self) -> float:
        """Seconds since it was written, as far as two clocks agree."""
        return time.time() - self.time


@dataclass(frozen=True)
class AtWork:
    """A step with a claim that is neither released nor followed by a record. `beat` is None when its run has none."""

    step: StepKey
    display: str
    holder: Holder
    since: float
    beat: Beat | None


@dataclass(frozen=True)
class Failed:
    """A step that failed and has had no record since; `log` is the key of what its last attempt logged, if anything."""

    display: str
    failure: PastFailure
    log: str | None


@dataclass(frozen=True)
class StepState:
    """A step of a run's plan and what became of it: done, cached, running, waiting, failed, blocked, cancelled, open.

    `event` is the newest thing that the run said of it.
    """

    entry: PlanEntry
    state: str
    event: Event | None


@dataclass(frozen=True)
class RunStatus:
    """A run: how it ended or whether it goes on, and its steps in the plan's order.

    `holder` is its process, as its events tell it, or its claims while they are not written yet.
    """

    run: PastRun
    holder: Holder | None
    beat: Beat | None
    steps: tuple[StepState, ...]

    @property
    def started(self) -> float | None:
        """When it started, in seconds since 1970; a young run tells it by its name alone."""
        if self.run.started is not None:
            return self.run.started.time
        try:
            return calendar.timegm(time.strptime(self.run.name.partition("-")[0], "%Y%m%dT%H%M%S"))
        except ValueError:
            return None

    @property
    def counts(self) -> Mapping[str, int]:
        """Steps by state."""
        return Counter(step.state for step in self.steps)

    @property
    def is_over(self) -> bool:
        """Whether the run said that it ended."""
        return self.run.finished is not None

    @property
    def text(self) -> str:
        """How it ended or how it goes on, in words."""
        if self.run.finished is not None:
            facts = self.run.finished.facts
            ended = SUCCEEDED if facts["succeeded"] else "ended with failures"
            return "interrupted" if facts["interrupted"] else ended
        return liveness(self.holder, self.beat)


@dataclass(frozen=True)
class Status:
    """The state of a prefix. `older_failures` were counted and not read."""

    index: RecordIndex
    at_work: tuple[AtWork, ...]
    failed: tuple[Failed, ...]
    older_failures: int
    run: RunStatus | None


def liveness(holder: Holder | None, beat: Beat | None) -> str:
    """Whether a holder that did not say that it ended still lives, as far as can be told from here."""
    if holder is not None and process_is_gone(holder):
        return "its process is gone"
    if beat is None:
        return "no heartbeat"
    heard = f"heartbeat {duration(beat.age)} ago"
    return f"silent: {heard}" if beat.age > SILENT_BEATS * beat.period else f"running, {heard}"


def duration(seconds: float) -> str:
    """A time span in its two largest units: `2 h 5 min`."""
    whole = max(0, round(seconds))
    for size, unit, smaller, part in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // smaller} {part}"
    return f"{whole} s"


def look(store: Store, *, all_failures: bool = False) -> Status:
    """Look at a prefix."""
    with ThreadPoolExecutor(3, thread_name_prefix="marin-status") as pool:
        listed = pool.submit(list_records, store)
        claims = pool.submit(_newest_claims, store)
        failures = pool.submit(_newest_failures, store)
        run = newest_run(store)
        index = listed.result()
    names = _displays(run)
    at_work = _at_work(store, index, claims.result(), names)
    places = list(_open_failures(index, failures.result(), run))
    shown = places if all_failures else places[:FAILURES]
    failed = _in_parallel(lambda place: _failed(store, place, names), shown)
    status = run_status(store, run, index, at_work) if run is not None else None
    return Status(index, tuple(at_work), tuple(failed), len(places) - len(shown), status)


def newest_run(store: Store) -> PastRun | None:
    """The newest run that has a plan."""
    for name in reversed(run_names(store)[-RUNS:]):
        run = read_run(store, name)
        if run.entries:
            return run
    return None


def run_status(store: Store, run: PastRun, index: RecordIndex, at_work: Sequence[AtWork] | None = None) -> RunStatus:
    """What became of a run and of its steps. `at_work` are the claims that are held, looked up when not given."""
    if run.finished is not None:
        return RunStatus(run, run.holder, None, tuple(_step_states(run, index, set())))
    if at_work is None:
        at_work = _at_work(store, index, _newest_claims(store), {})
    own = [work for work in at_work if work.holder.run == run.name]
    holder = run.holder or next((work.holder for work in own), None)
    steps = _step_states(run, index, {work.step for work in own})
    return RunStatus(run, holder, read_beat(store, run.name), tuple(steps))


def _step_states(run: PastRun, index: RecordIndex, held: Set[StepKey]) -> Iterator[StepState]:
    """`held` are the steps on which the run has claims: its events come some seconds later."""
    for identity, entry in run.entries.items():
        event = run.latest.get(identity)
        if entry.action == Action.unneeded.value:
            continue
        if entry.action == Action.cached.value:
            state = "cached"
        elif event is not None and event.kind in ("step.done", "step.cached"):
            state = event.kind.removeprefix("step.")
        elif index.generation(entry.name, identity) >= entry.generation:
            state = "done"
        else:
            state = event.kind.removeprefix("step.") if event is not None else "open"
            if state in ("open", "waiting") and (layout.flat(entry.name), layout.short(identity)) in held:
                state = "running"
        yield StepState(entry, state, event)


def blockers(status: RunStatus, identity: str) -> list[tuple[StepState, tuple[str, ...]]]:
    """The failed or cancelled steps above a step of a run, each with the steps between, from the lower one upwards."""
    states = {step.entry.identity: step for step in status.steps}
    found = []
    seen = {identity}
    queue: deque[tuple[str, tuple[str, ...]]] = deque([(identity, ())])
    while queue:
        current, way = queue.popleft()
        for above in status.run.entries[current].upstream if current in status.run.entries else ():
            if above in seen or above not in states:
                continue
            seen.add(above)
            if states[above].state in ("failed", "cancelled"):
                found.append((states[above], way))
            elif states[above].state not in ("done", "cached"):
                queue.append((above, (*way, states[above].entry.display)))
    return found


def read_beat(store: Store, run: str) -> Beat | None:
    """A run's heartbeat, or None when it has none that can be read."""
    try:
        body = json.loads(store.read(layout.beat_key(run)))
        return Beat(float(body["time"]), float(body["period"]))
    except (MissingObject, ValueError, KeyError):
        return None


def _displays(run: PastRun | None) -> dict[StepKey, str]:
    """Steps with their labels, which only a plan or a record tells."""
    entries = run.entries.values() if run is not None else ()
    return {(layout.flat(entry.name), layout.short(entry.identity)): entry.display for entry in entries}


def _display(step: StepKey, names: Mapping[StepKey, str]) -> str:
    return names.get(step, f"{layout.unflat(step[0])}-{step[1]}")


def _newest_claims(store: Store) -> dict[StepKey, int]:
    """The newest epoch of each step whose newest claim was not released."""
    epochs: dict[StepKey, int] = defaultdict(int)
    released: set[tuple[StepKey, int]] = set()
    for page in store.pages(layout.CLAIMS):
        for info in page:
            match = CLAIM_KEY.fullmatch(info.key)
            if match is None:
                continue
            step, epoch = (match[1], match[2]), int(match[3])
            epochs[step] = max(epochs[step], epoch)
            if match[4] == "released":
                released.add((step, epoch))
    return {step: epoch for step, epoch in epochs.items() if (step, epoch) not in released}


def _at_work(
    store: Store, index: RecordIndex, claims: Mapping[StepKey, int], names: Mapping[StepKey, str]
) -> list[AtWork]:
    """Claims for a generation that has no record. Each generation took an epoch, so most need not be read."""
    suspects = [(step, epoch) for step, epoch in claims.items() if epoch > index.generations.get(step, 0)]

    def read(suspect: tuple[StepKey, int]) -> tuple[StepKey, dict[str, Any]] | None:
        step, epoch = suspect
        try:
            body = json.loads(store.read(layout.claim_key(*step, epoch)))
        except MissingObject:  # collected a moment ago
            return None
        return (step, body) if body["generation"] > index.generations.get(step, 0) else None

    held = [one for one in _in_parallel(read, suspects) if one is not None]
    runs = sorted({body["run"] for _, body in held})
    beats = dict(zip(runs, _in_parallel(lambda run: read_beat(store, run), runs), strict=True))
    return [
        AtWork(
            step,
            _display(step, names),
            Holder(**{field: body[field] for field in HOLDER_FIELDS}),
            float(body["time"]),
            beats[body["run"]],
        )
        for step, body in sorted(held, key=lambda one: one[0])
    ]


def _newest_failures(store: Store) -> dict[StepKey, FailureKey]:
    newest: dict[StepKey, FailureKey] = {}
    for page in store.pages(layout.FAILED):
        for place in (parse_failure_key(info.key) for info in page):
            if place is None:
                continue
            known = newest.get((place.name, place.short))
            if known is None or (known.run, known.attempt) < (place.run, place.attempt):
                newest[place.name, place.short] = place
    return newest


def _open_failures(
    index: RecordIndex, failures: Mapping[StepKey, FailureKey], run: PastRun | None
) -> Iterator[FailureKey]:
    """Failures of steps that have no record, or of a redo by the newest run, newest first."""
    redone = {
        (layout.flat(entry.name), layout.short(identity))
        for identity, entry in (run.entries.items() if run is not None else ())
        if entry.generation > index.generation(entry.name, identity)
    }
    for step, place in sorted(failures.items(), key=lambda one: one[1].run, reverse=True):
        if step not in index.generations or (run is not None and place.run == run.name and step in redone):
            yield place


def _failed(store: Store, place: FailureKey, names: Mapping[StepKey, str]) -> Failed:
    log = log_key(place)
    return Failed(
        _display((place.name, place.short), names),
        read_failure(store, place),
        log if store.exists(log) else None,
    )


def log_key(place: FailureKey) -> str:
    """Where the log of the attempt lies that ended in a failure."""
    return f"{layout.run_folder(place.run)}/logs/{place.name}-{place.short}-a{place.attempt}.log"


def _in_parallel(act: Callable[[Item], Found], items: Sequence[Item]) -> list[Found]:
    if not items:
        return []
    with ThreadPoolExecutor(min(AT_ONCE, len(items)), thread_name_prefix="marin-read") as pool:
        return list(pool.map(act, items))


def done_by_name(steps: Iterable[StepKey]) -> dict[str, int]:
    """How many steps of each name there are."""
    return dict(sorted(Counter(layout.unflat(name) for name, _ in steps).items()))
