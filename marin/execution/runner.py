"""The runner: executes a plan, step by step, and leaves records.

For each step: claim it (or wait for whoever holds it), run it in the back end, check its evidence, create its record.
Independent steps run at the same time. A failed step blocks what depends on it and nothing else.
"""

from __future__ import annotations

import dataclasses
import enum
import logging
import os
import platform
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

from marin.execution import layout
from marin.execution.artifact import Artifact, call_of
from marin.execution.claims import Claim, Claims, Holder, check_lease
from marin.execution.code_digest import code_digest
from marin.execution.codec import qualified_name
from marin.execution.context import Report, RunSpec
from marin.execution.failures import RETRY_BUDGET, Cancelled, FailureClass
from marin.execution.fleet import Fleet
from marin.execution.inline import Backend, InlineBackend
from marin.execution.plan import Action, Plan, PlannedStep, changed_upstream, record_of
from marin.execution.records import Dependency, Record, load_record, materialise_record, output_digest
from marin.execution.resolve import resolve
from marin.execution.runlog import Heartbeat, RunLog, new_run
from marin.execution.worker import Failure, Outcome, StepTask, failure_of
from marin.storage import AlreadyExists, Store

POLL_SECONDS = 1.0
TICK_SECONDS = 0.2

logger = logging.getLogger(__name__)


class Status(enum.Enum):
    """How a step of a run ended, or how far it is."""

    pending = "pending"
    waiting = "waiting for another run"
    running = "running"
    done = "done"
    cached = "cached"
    failed = "failed"
    blocked = "blocked"
    cancelled = "cancelled"


BROKEN = (Status.failed, Status.blocked, Status.cancelled)
"""How a step can end without a record."""


@dataclass(frozen=True)
class RunOptions:
    """Settings of a run; none is part of any identity. Times are in seconds."""

    max_concurrent: int = 8
    stale_after: float = 90.0
    fail_fast: bool = False
    retry_pause: float = 1.0
    attachments: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.max_concurrent < 1:
            raise ValueError(f"max_concurrent must be at least 1, got {self.max_concurrent}")
        if self.stale_after <= 0:
            raise ValueError(f"stale_after must be positive, got {self.stale_after} s")


@dataclass(eq=False)
class Progress:
    """One step as a run sees it."""

    step: PlannedStep
    status: Status = Status.pending
    started: float = 0.0
    seconds: float = 0.0
    failure: Failure | None = None
    blocked_by: str = ""
    poll_at: float = 0.0
    attempts: int = 0
    latest: dict[str, Any] = field(default_factory=dict)


class Observer(Protocol):
    """Who watches a run, such as the console."""

    def changed(self, progress: Progress, text: str = "") -> None:
        """A step's status changed."""

    def advanced(self, progress: Progress) -> None:
        """A step reported progress."""


class Silent:
    """Watches nothing."""

    def changed(self, progress: Progress, text: str = "") -> None:
        """Ignore."""

    def advanced(self, progress: Progress) -> None:
        """Ignore."""


@dataclass
class RunResult:
    """What a run came to."""

    run: str
    steps: list[Progress]
    interrupted: bool = False

    @property
    def failures(self) -> list[Progress]:
        """Steps that failed, or were cancelled although the run was not interrupted."""
        ends = (Status.failed,) if self.interrupted else (Status.failed, Status.cancelled)
        return [progress for progress in self.steps if progress.status in ends]

    @property
    def succeeded(self) -> bool:
        """Whether everything that was asked for is there."""
        return not self.interrupted and all(p.status in (Status.done, Status.cached) for p in self.steps)


class Runner:
    """Runs one plan on one store."""

    def __init__(
        self,
        store: Store,
        plan: Plan,
        options: RunOptions,
        make_backend: Callable[[], Backend],
        observer: Observer | None = None,
    ) -> None:
        self.store = store
        self.plan = plan
        self.options = options
        self.observer = observer or Silent()
        self.run_name = new_run()
        self.claims = Claims(store, self.run_name, options.stale_after)
        self.log = RunLog(store, self.run_name)
        self._make_backend = make_backend
        self._backend: Backend | None = None
        self._backend_wanted = threading.Event()
        self._backend_ready = threading.Event()
        self._inline = InlineBackend()
        self._held: dict[int, Claim] = {}
        self._stopping = threading.Event()
        self._steps = {id(step): Progress(step) for step in plan.to_do()}
        self._messages: queue.SimpleQueue[tuple[Progress, dict[str, Any]]] = queue.SimpleQueue()

    # --- the loop ---

    def run(self) -> RunResult:
        """Run the plan to its end; returns what became of each step. Ctrl-C ends it cleanly."""
        self.store.check_writable()
        heartbeat = Heartbeat(self.claims)
        heartbeat.start()
        self.log.plan(self.plan)
        for name, data in self.options.attachments.items():
            self.log.attach(name, data)
        self.log.event("run.started", run=self.run_name, host=socket.gethostname(), pid=os.getpid(), argv=sys.argv)
        pool = ThreadPoolExecutor(self.options.max_concurrent, thread_name_prefix="marin-step")
        result = RunResult(self.run_name, list(self._steps.values()))
        try:
            self._loop(pool)
        except KeyboardInterrupt:
            result.interrupted = True
            self._stop()
        finally:
            pool.shutdown(wait=not result.interrupted, cancel_futures=True)
            if self._backend is not None:
                self._backend.close()
            for key, claim in list(self._held.items()):
                self._release(key, claim)
            self.log.event("run.finished", interrupted=result.interrupted, succeeded=result.succeeded)
            self.log.flush()
            heartbeat.stop()
        return result

    def _loop(self, pool: ThreadPoolExecutor) -> None:
        running: dict[Future[None], Progress] = {}
        while True:
            self._settle_dependents()
            at_work = set(map(id, running.values()))
            open_steps = [p for p in self._steps.values() if p.status in (Status.pending, Status.waiting)]
            for progress in [p for p in open_steps if id(p) not in at_work]:
                if len(running) < self.options.max_concurrent and self._is_ready(progress):
                    progress.status = Status.running if progress.status is Status.pending else progress.status
                    running[pool.submit(self._advance, progress)] = progress
            if self._backend_wanted.is_set() and self._backend is None:
                self._start_backend()
            if not running and not any(p.status in (Status.pending, Status.waiting) for p in self._steps.values()):
                return
            self._pass_on_progress()
            for future in [future for future in running if future.done()]:
                del running[future]
                future.result()
            time.sleep(0.02 if running else TICK_SECONDS)

    def _start_backend(self) -> None:
        """Start the back end, from the main thread: what it starts may be made to end with the thread that did.

        When it cannot start, that is no step's fault, and the whole run ends.
        """
        try:
            self._backend = self._make_backend()
        except BaseException:
            self._stopping.set()
            raise
        self._backend_ready.set()

    def _is_ready(self, progress: Progress) -> bool:
        if time.monotonic() < progress.poll_at:
            return False
        return all(self._status(up) in (Status.done, Status.cached) for up in progress.step.upstream)

    def _status(self, step: PlannedStep) -> Status:
        progress = self._steps.get(id(step))
        return progress.status if progress is not None else Status.cached

    def _settle_dependents(self) -> None:
        """Block what depends on a step that will have no record."""
        changed = True
        while changed:
            changed = False
            for progress in self._steps.values():
                if progress.status is not Status.pending:
                    continue
                broken = [u for u in progress.step.upstream if self._status(u) in BROKEN]
                stopped = self.options.fail_fast and any(p.status is Status.failed for p in self._steps.values())
                if broken or stopped:
                    progress.status = Status.blocked
                    progress.blocked_by = broken[0].display if broken else "--fail-fast"
                    self._tell(progress, f"needs {progress.blocked_by}")
                    changed = True

    def _pass_on_progress(self) -> None:
        while not self._messages.empty():
            progress, message = self._messages.get()
            progress.latest = message
            try:
                self.observer.advanced(progress)
            except Exception as error:
                logger.warning("the progress of %s could not be shown: %s", progress.step.display, error)

    def _stop(self) -> None:
        self._stopping.set()
        self._inline.cancel()
        if self._backend is not None:
            self._backend.cancel()
        deadline = time.monotonic() + 5
        while self._held and time.monotonic() < deadline:
            time.sleep(0.05)
        for progress in self._steps.values():
            if progress.status in (Status.pending, Status.waiting, Status.running):
                progress.status = Status.cancelled

    def _tell(self, progress: Progress, text: str = "") -> None:
        step = progress.step
        self.log.event(
            f"step.{progress.status.name}",
            step=step.name,
            identity=step.identity,
            label=step.call.label,
            seconds=round(progress.seconds, 3),
            text=text,
        )
        try:
            self.observer.changed(progress, text)
        except Exception as error:  # such as a terminal that was closed: no step fails for that
            logger.warning("the state of %s could not be shown: %s", step.display, error)

    # --- one step, in a thread ---

    def _advance(self, progress: Progress) -> None:
        """Bring a ready step to an end, or find out that another run has it."""
        step = progress.step
        try:
            if self._needs_no_run(progress):
                return
            held = self.claims.take(step.name, step.identity)
            if isinstance(held, Holder):
                if progress.status is not Status.waiting:
                    progress.status = Status.waiting
                    self._tell(progress, f"run {held.run} on {held.host} has it")
                progress.poll_at = time.monotonic() + POLL_SECONDS
                return
            self._held[id(step)] = held
            try:
                if not self._needs_no_run(progress):
                    self._run_claimed(progress, held)
            finally:
                self._release(id(step), held)
        except BaseException as error:
            self._fail(progress, failure_of(error), attempt=0)

    def _release(self, key: int, claim: Claim) -> None:
        """Let go of a claim. One that cannot be released now stays held, and is released when the run ends."""
        try:
            self.claims.release(claim)
        except Exception as error:  # clients have errors of their own
            logger.warning("the claim on %s could not be released: %s", claim.name, error)
        else:
            self._held.pop(key, None)

    def _needs_no_run(self, progress: Progress) -> bool:
        """Whether the record is there already, made by another run, or still holds after an upstream was redone."""
        step = progress.step
        if step.action is Action.check and progress.status is not Status.waiting:
            changed = changed_upstream(step, self.store, step.generation - 1)
            if changed is None:
                step.generation -= 1
                step.action = Action.cached
                progress.status = Status.cached
                self._tell(progress, "its input did not change")
                return True
        if not self.store.exists(step.record_key):
            return False
        progress.status = Status.cached
        self._tell(progress, f"made by run {record_of(step, self.store).provenance['run']}")
        return True

    def _run_claimed(self, progress: Progress, claim: Claim) -> None:
        step = progress.step
        backend = self._backend_for(step)
        progress.status = Status.running
        progress.started = time.monotonic()
        self._tell(progress)
        tries = dict.fromkeys(RETRY_BUDGET, 0)
        while True:
            progress.attempts += 1
            attempt = progress.attempts
            task = self._task(step, claim, attempt)
            started = time.time()
            outcome = backend.run(task, self._report(progress))
            self.log.log(f"{layout.flat(step.name)}-{layout.short(step.identity)}", attempt, outcome.log)
            if outcome.failure is None:
                step.record = self._commit(step, task, outcome, started)
                progress.seconds = time.monotonic() - progress.started
                progress.status = Status.done
                self._tell(progress)
                return
            kind = outcome.failure.kind
            if kind in RETRY_BUDGET and tries[kind] < RETRY_BUDGET[kind] and not self._stopping.is_set():
                tries[kind] += 1
                self._tell(progress, f"{outcome.failure.message}; again ({kind.value} {tries[kind]})")
                self._stopping.wait(self.options.retry_pause * min(2 ** (tries[kind] - 1), 60))
                continue
            progress.seconds = time.monotonic() - progress.started
            self._fail(progress, outcome.failure, attempt)
            return

    def _report(self, progress: Progress) -> Report:
        def report(message: dict[str, Any]) -> None:
            self._messages.put((progress, message))

        return report

    def _backend_for(self, step: PlannedStep) -> Backend:
        if step.call.step.inline:
            return self._inline
        self._backend_wanted.set()
        while not self._backend_ready.wait(TICK_SECONDS):
            if self._stopping.is_set():
                raise Cancelled("the run is ending")
        if self._stopping.is_set() or self._backend is None:
            raise Cancelled("the run is ending")
        return self._backend

    def _task(self, step: PlannedStep, claim: Claim, attempt: int) -> StepTask:
        described = step.call.step
        spec = RunSpec(
            store=self.store,
            run=self.run_name,
            name=step.name,
            display=step.display,
            step_folder=step.folder,
            attempt=attempt,
            claim=claim,
            fleet=step.call.fleet or Fleet(),
            code_digest=code_digest(described.function),
            fans_out=described.fans_out,
            first_epoch=self._first_epoch(step),
        )
        by_call = {id(call_of(a)): up for a, up in self._dependencies(step)}

        def materialise(artifact: Artifact) -> Artifact:
            up = by_call.get(id(call_of(artifact)))
            if up is None:
                return artifact
            return materialise_record(self.store, record_of(up, self.store), up.call.step.result_type)

        arguments = {name: resolve(value, materialise) for name, value in step.call.arguments.items()}
        return StepTask(spec, described.function, arguments, described.result_type, described.cpus, described.memory_gb)

    def _first_epoch(self, step: PlannedStep) -> int:
        """The first epoch whose state counts: a redo starts afresh, and goes on from its own generation only."""
        if step.generation == 1:
            return 1
        previous = layout.record_key(step.name, step.identity, step.generation - 1)
        return int(load_record(self.store, previous).provenance["epoch"]) + 1

    def _dependencies(self, step: PlannedStep) -> list[tuple[Artifact, PlannedStep]]:
        by_identity = {up.identity: up for up in step.upstream}
        listed = step.document["dependencies"]
        assert isinstance(listed, list)
        return [
            (artifact, by_identity[identity])
            for (_, artifact), (_, identity) in zip(step.recipe.dependencies, listed, strict=True)
            if identity in by_identity
        ]

    def _commit(self, step: PlannedStep, task: StepTask, outcome: Outcome, started: float) -> Record:
        """Create the record; when another run was first, take its record."""
        for flow in outcome.flows:
            flow.check(step.display)
        above = self._dependencies(step)
        paths = [path for path, artifact in step.recipe.dependencies if call_of(artifact) is not None]
        records = [record_of(up, self.store) for _, up in above]
        record = Record(
            key=step.record_key,
            name=step.name,
            version=step.call.step.version,
            label=step.call.label,
            identity=step.identity,
            generation=step.generation,
            path=task.spec.attempt_folder,
            result_type=qualified_name(step.call.step.result_type),
            result=outcome.result,
            files=outcome.files,
            flows=outcome.flows,
            recipe=step.document,
            dependencies=tuple(
                Dependency(path, one.name, one.identity, one.key, one.output_digest)
                for path, one in zip(paths, records, strict=True)
            ),
            output_digest=output_digest(outcome.files, outcome.result),
            code_digest=task.spec.code_digest,
            provenance={
                "run": self.run_name,
                "attempt": task.spec.attempt,
                "epoch": task.spec.claim.epoch,
                "host": socket.gethostname(),
                "started": started,
                "finished": time.time(),
                "python": platform.python_version(),
            },
        )
        check_lease(self.store, task.spec.claim)
        try:
            self.store.create(record.key, record.to_json())
        except AlreadyExists:
            return load_record(self.store, record.key)
        return record

    def _fail(self, progress: Progress, failure: Failure, attempt: int) -> None:
        step = progress.step
        if failure.kind is FailureClass.lease and not self._stopping.is_set():
            progress.status = Status.waiting
            progress.poll_at = time.monotonic() + POLL_SECONDS
            self._tell(progress, failure.message)
            return
        progress.failure = failure
        cancelled = failure.kind is FailureClass.cancelled or self._stopping.is_set()
        progress.status = Status.cancelled if cancelled else Status.failed
        if not cancelled:
            body = {**dataclasses.asdict(failure), "kind": failure.kind.value, "step": step.name, "time": time.time()}
            key = layout.failure_key(step.name, step.identity, self.run_name, attempt)
            self.log.failure(key, body)
        self._tell(progress, f"{failure.error}: {failure.message}")
