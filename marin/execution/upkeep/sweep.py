"""Carries a collection out, beside runs that go on.

The order makes every moment a good one to die: entries that lead to a record go first, then the record, then its files,
and what a result refers to goes after the record that refers to it. So a crash leaves litter and never a record without
its files. Before each batch of steps the prefix is looked at again: a run that has begun keeps what it planned, a pin
keeps what it names, and a step that something could go on from is claimed before anything of it goes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from marin.execution import layout
from marin.execution.failures import LeaseLost
from marin.execution.planning.index import StepKey
from marin.execution.planning.record_stream import stream_records
from marin.execution.records import Record
from marin.execution.running.claims import Claim, Holder, check_lease
from marin.execution.upkeep.collect import Collection, Reason, Removal
from marin.execution.upkeep.custody import Custodian
from marin.execution.upkeep.removal import AT_ONCE, remove_empty_folders, remove_object, remove_objects
from marin.execution.upkeep.roots import Roots, add_pins, add_run, mark
from marin.storage import ObjectInfo, Store

T = TypeVar("T")
R = TypeVar("R")

BATCH = 128
"""Steps between two looks at the prefix."""
POLL_SECONDS = 5.0
"""Between two looks at the heartbeats of holders that were silent so far."""
SETTLE_SECONDS = 2.0
"""Between the removal of a record that other recipes could take over and the look for one that just did."""
LEASE_SECONDS = 5.0
"""Between two looks at a claim under which data goes."""
SILENCE_SECONDS = 100.0
"""After which a holder that was silent all the time is taken for dead: more than three of the longest heartbeats."""


@dataclass
class Swept:
    """What was removed, what could not be (with the cause), and what stayed because something had changed."""

    objects: int = 0
    size: int = 0
    failed: list[str] = field(default_factory=list)
    kept_back: list[str] = field(default_factory=list)


def sweep(store: Store, collection: Collection, progress: Callable[[Swept], None] | None = None) -> Swept:
    """Remove what a collection holds. `progress` is called from this thread after each batch."""
    with Custodian(store) as custodian:
        work = Sweep(store, collection, custodian, progress)
        work.run()
    return work.swept


class Sweep:
    """One pass over the removals of a collection."""

    def __init__(
        self,
        store: Store,
        collection: Collection,
        custodian: Custodian,
        progress: Callable[[Swept], None] | None = None,
    ) -> None:
        self.store = store
        self.collection = collection
        self.custodian = custodian
        self.swept = Swept()
        self._progress = progress
        self._lock = threading.Lock()
        self._known_records = {key for _, _, key in collection.inventory.records()}
        self._known_runs = {*collection.inventory.runs, custodian.run}
        self._known_pins = {pin.key for pin in store.list(layout.PINS)}
        self._kept_files = set(collection.marks.files)
        self._kept_records = set(collection.marks.records)
        self._protected: set[StepKey] = set()
        self._silent: list[tuple[Removal, Holder, bytes]] = []

    def run(self) -> None:
        """Remove everything, steps before what they refer to."""
        add_pins(self.store, self.collection.roots)  # those that were made since the plan
        self._protect(self.collection.roots)
        asked = time.monotonic()
        for batch in batches(in_order(self.collection)):
            self._remove(batch)
        for batch in batches([self._dead_by(asked + SILENCE_SECONDS)]):
            self._remove(batch)
        for removal, holder, _ in self._silent:  # somebody took one over meanwhile
            self._keep_back(f"{removal.display}: run {holder.run} on {holder.host} has it")
        self._look_again()
        kept = self.collection.roots.runs
        runs = {run: infos for run, infos in self.collection.runs.items() if run not in kept}
        self._delete([info for infos in runs.values() for info in infos])
        self._delete([info for _, info in self.collection.index])
        remove_empty_folders(self.store, {info.key.rpartition("/")[0] for _, info in self.collection.index})
        remove_empty_folders(self.store, map(layout.run_folder, runs))
        self._tell()

    def _dead_by(self, deadline: float) -> list[Removal]:
        """Removals that somebody holds of whom nothing was seen until a time on our own clock; the others stay."""
        silent, self._silent = self._silent, []
        while True:
            lively = [one for one in silent if self.custodian.shows_life(one[1], one[2])]
            for removal, holder, _ in lively:
                self._keep_back(f"{removal.display}: run {holder.run} on {holder.host} has it")
            silent = [one for one in silent if one not in lively]
            left = deadline - time.monotonic()
            if not silent or left <= 0:
                return [removal for removal, _, _ in silent]
            time.sleep(min(left, POLL_SECONDS))

    def _remove(self, batch: Sequence[Removal]) -> None:
        self._look_again()
        wanted = [removal for removal in batch if self._may_go(removal)]
        claims = self._each(self._claim, wanted)
        held = [(removal, claim) for removal, claim in zip(wanted, claims, strict=True) if claim is not None]
        removed = self._each(lambda pair: self._remove_records(pair[0]), held)
        ready = [pair for pair, is_removed in zip(held, removed, strict=True) if is_removed]
        stuck = [pair for pair, is_removed in zip(held, removed, strict=True) if not is_removed]
        self._keep_what_stays_refers_to(wanted, ready)
        if any(removal.content for removal, _ in ready):
            time.sleep(SETTLE_SECONDS)
        self._keep_files_of_new_records()
        self._remove_data(ready)
        self._delete([info for removal, _ in ready for _, info in removal.rest])
        remove_empty_folders(self.store, (folder for removal, _ in ready for folder in folders_of(removal)))
        for removal, claim in ready:
            self._let_go(removal, claim)
        steps = [removal.step for removal, _ in ready if removal.rest or removal.claims]
        remove_empty_folders(self.store, (layout.claim_folder(*step) for step in steps))
        remove_empty_folders(self.store, (layout.failure_folder(*step) for step in steps))
        for removal, claim in stuck:
            self._keep_back(f"{removal.display}: its record could not be removed, so its files stay")
            if isinstance(claim, Claim):
                self.custodian.release(claim)
        self._tell()

    def _each(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="marin-sweep") as pool:
            return list(pool.map(work, items))

    def _keep_what_stays_refers_to(
        self, wanted: Sequence[Removal], ready: Sequence[tuple[Removal, Claim | bool]]
    ) -> None:
        """The record of a step that stays after all must not come to refer to one that is gone."""
        gone = {removal.step for removal, _ in ready}
        stays = [removal.step for removal in wanted if removal.step not in gone]
        if stays:
            marks = mark(self.collection.inventory, self.collection.books, stays, strict=False)
            self._protected |= marks.steps - set(stays) - self.collection.marks.steps

    # --- looking again ---

    def _look_again(self) -> None:
        """Keep what a run that began since, or a pin that was set since, needs."""
        roots = Roots()
        for run in set(self.store.folders(layout.RUNS)) - self._known_runs:
            add_run(self.store, roots, run, lives=True)
            if roots.live:  # one that has not written its plan yet is looked at again
                self._known_runs.add(run)
        pins = {info.key for info in self.store.list(layout.PINS)}
        if pins - self._known_pins:
            add_pins(self.store, roots)
            self._known_pins = pins
        if roots.steps:
            self._protect(roots)
        self.collection.roots.runs |= roots.runs

    def _protect(self, roots: Roots) -> None:
        marks = mark(self.collection.inventory, self.collection.books, roots.steps, roots.live)
        self._protected |= marks.steps - self.collection.marks.steps
        self._protected |= roots.live
        self._kept_files |= marks.files
        self._kept_records |= marks.records

    def _may_go(self, removal: Removal) -> bool:
        if removal.step in self._protected or any(info.key in self._kept_records for _, info in removal.records):
            self._keep_back(f"{removal.display}: a run or a pin has come to need it")
            return False
        return True

    def _keep_files_of_new_records(self) -> None:
        """A record that was made since the prefix was listed may list files of an older one (early cutoff)."""
        fresh = [
            info.key
            for page in self.store.pages(layout.RECORDS)
            for info in page
            if info.key.endswith(layout.RECORD_SUFFIX) and info.key not in self._known_records
        ]
        for key, record in stream_records(self.store, fresh):
            self._known_records.add(key)
            if isinstance(record, Record):
                self._kept_files.update(file.key for file in record.files)

    # --- one step ---

    def _claim(self, removal: Removal) -> Claim | bool | None:
        """The claim that a removal needs, True when it needs none, None when the step stays for now."""
        name, identity = removal.step
        if not removal.exclusive:
            if not self.store.exists(layout.claim_key(name, identity, removal.epoch + 1)):
                return True
            self._keep_back(f"{removal.display}: a run has come to work on it")
            return None
        taken = self.custodian.take(name, identity, removal.newest + 1, removal.folder)
        if isinstance(taken, Holder):
            seen = self.custodian.beat_of(taken)
            with self._lock:
                self._silent.append((removal, taken, seen))
            return None
        if self.store.exists(layout.record_key(name, identity, removal.newest + 1)):
            self._keep_back(f"{removal.display}: it was made again meanwhile")
            self.custodian.release(taken)
            return None
        return taken

    def _remove_records(self, removal: Removal) -> bool:
        """What leads to the records, then the records, each before its tombstone; stops at the first that stays."""
        objects = [info for _, info in (*removal.content, *removal.records)]
        return all(self._delete_one(info) for info in objects)

    def _remove_data(self, ready: Sequence[tuple[Removal, Claim | bool]]) -> None:
        """The data of steps, as long as their claims hold: a machine that slept may have lost one meanwhile."""
        checked = dict.fromkeys((id(removal) for removal, _ in ready), time.time())
        lost: set[int] = set()

        def one(job: tuple[Removal, Claim | bool, ObjectInfo]) -> None:
            removal, claim, info = job
            if isinstance(claim, Claim) and abs(time.time() - checked[id(removal)]) > LEASE_SECONDS:
                try:
                    check_lease(self.store, claim)
                except LeaseLost as error:
                    lost.add(id(removal))
                    self._keep_back(f"{removal.display}: {error}")
                checked[id(removal)] = time.time()
            if id(removal) not in lost:
                self._delete_one(info)

        jobs = [
            (removal, claim, info)
            for removal, claim in ready
            for _, info in removal.data
            if info.key not in self._kept_files
        ]
        self._each(one, jobs)

    def _keep_back(self, text: str) -> None:
        with self._lock:
            self.swept.kept_back.append(text)

    def _let_go(self, removal: Removal, claim: Claim | bool) -> None:
        """Release our claim, or remove it with all others, from the first epoch up and ours last.

        Others that are young stay, and with them ours, so that epochs go on counting; one that was made since the
        prefix was listed is not ours to remove.
        """
        if not isinstance(claim, Claim):
            return
        is_next = claim.epoch == removal.epoch + 1
        if is_next and (removal.claims or removal.epoch == 0):
            self._settle_claims(removal)
            if remove_object(self.store, claim.key) is None:
                self.custodian.forget(claim)
                return
        self.custodian.release(claim)

    def _settle_claims(self, removal: Removal) -> None:
        for _, info in removal.claims:
            self._delete_one(info)

    # --- objects ---

    def _delete(self, infos: Sequence[ObjectInfo]) -> None:
        gone, failed = remove_objects(self.store, infos)
        self._count(gone, failed)

    def _delete_one(self, info: ObjectInfo) -> bool:
        error = remove_object(self.store, info.key)
        self._count([info] if error is None else [], [error] if error is not None else [])
        return error is None

    def _count(self, gone: Sequence[ObjectInfo], failed: Sequence[str]) -> None:
        with self._lock:
            self.swept.objects += len(gone)
            self.swept.size += sum(info.size for info in gone)
            self.swept.failed += failed

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(self.swept)


def folders_of(removal: Removal) -> set[str]:
    """Folders that may be empty once a removal is done: those of attempts and epochs, or the step's own."""
    found = set()
    for reason, info in removal.data:
        parts = info.key.split("/")
        at = next(i for i, part in enumerate(parts) if part == removal.step[1] or part.endswith(f"-{removal.step[1]}"))
        whole = reason in (Reason.unreachable, Reason.abandoned)
        found.add("/".join(parts[: at + (1 if whole else 3 if parts[at + 1] == "state" else 2)]))
    return found


def in_order(collection: Collection) -> list[list[Removal]]:
    """Removals in levels: a record goes in an earlier level than the records that its result refers to."""
    by_step = {removal.step: removal for removal in collection.removals}
    below: dict[StepKey, set[StepKey]] = {step: set() for step in by_step}
    waiting = dict.fromkeys(by_step, 0)
    for step, removal in by_step.items():
        for _, info in removal.records:
            facts = collection.books.facts.get(info.key)
            parsed = [layout.parse_record_key(key) for key in facts.references] if facts is not None else []
            below[step] |= {(one[0], one[1]) for one in parsed if one is not None and (one[0], one[1]) in by_step}
        below[step].discard(step)
    for step in (one for several in below.values() for one in several):
        waiting[step] += 1
    levels: list[list[Removal]] = []
    level = [step for step, count in waiting.items() if not count]
    while level:
        levels.append([by_step[step] for step in level])
        following = []
        for step in level:
            for referred in below[step]:
                waiting[referred] -= 1
                if not waiting[referred]:
                    following.append(referred)
        level = following
    return levels


def batches(levels: Iterable[Sequence[Removal]], size: int = BATCH) -> Iterator[Sequence[Removal]]:
    """The removals of each level, some at a time."""
    for level in levels:
        for start in range(0, len(level), size):
            yield level[start : start + size]
