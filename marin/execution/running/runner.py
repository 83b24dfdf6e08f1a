"""The runner: executes a plan, step by step, and leaves records.

For each step: claim it (or wait for whoever holds it), run it in the back end, check its evidence, create its record.
Independent steps run at the same time. A failed step blocks what depends on it and nothing else.
"""

from __future__ import annotations

import dataclasses
import enum
import logging
import os
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

from marin.execution import layout
from marin.execution.artifact import Artifact, call_of
from marin.execution.code_digest import code_digest
from marin.execution.failures import RETRY_BUDGET, Cancelled, ClusterLost, FailureClass
from marin.execution.fleet import Fleet
from marin.execution.plain_text import mask_tokens
from marin.execution.planning.plan import Action, Plan, PlannedStep, changed_upstream, record_of
from marin.execution.records import materialise_record
from marin.execution.redaction import refuse_exposed
from marin.execution.running.claims import Claim, Claims, Holder
from marin.execution.running.commit import (
    Origin,
    commit,
    equal_work,
    is_made_from_what_lies_here,
    new_record,
    upstream_of,
)
from marin.execution.running.context import Report, RunSpec
from marin.execution.running.inline import Backend, InlineBackend
from marin.execution.running.patience import PatientStore
from marin.execution.running.resolve import resolve
from marin.execution.running.runlog import RunLog, new_run
from marin.execution.running.watch import Heartbeat, LeaseWatch
from marin.execution.running.worker import Failure, StepTask, failure_of
from marin.execution.secrets import SecretValues, secret_values, secrets_in
from marin.storage import CountedStore, Store

POLL_SECONDS = 1.0
TICK_SECONDS = 0.2
STOP_SECONDS = 5.0

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
    """Settings of a run; none is part of any identity. Times are in seconds.

    `environment` is where the values of secrets come from.
    """

    max_concurrent: int = 8
    stale_after: float = 90.0
    fail_fast: bool = False
    retry_pause: float = 1.0
    attachments: dict[str, bytes] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

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


@dataclass(frozen=True)
class Word:
    """What a step's thread tells the loop: progress, that it has ended, or only that there is something to look at."""

    progress: Progress
    message: dict[str, Any] | None = None
    ended: bool = False


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
        self.plan = plan
        self.options = options
        self.observer = observer or Silent()
        self.run_name = new_run()
        self._stopping = threading.Event()
        self.worker_store = store
        self.store = PatientStore(store, self._stopping)
        self.claims = Claims(self.store, self.run_name, options.stale_after)
        self.log = RunLog(self.store, self.run_name)
        self._make_backend = make_backend
        self._backend: Backend | None = None
        self._backend_wanted = threading.Event()
        self._backend_ready = threading.Event()
        self._inline = InlineBackend()
        self._held: dict[int, Claim] = {}
        self._steps = {id(step): Progress(step) for step in plan.to_do()}
        self._dependents: dict[int, list[Progress]] = {key: [] for key in self._steps}
        self._missing: dict[int, int] = {}
        self._ready: deque[Progress] = deque()
        self._waiting: list[Progress] = []
        self._at_work = 0
        self._inbox: queue.SimpleQueue[Word] = queue.SimpleQueue()
        self._leases = LeaseWatch(self.store, self._lose)
        self._secrets: dict[int, SecretValues] = {}

    # --- the loop ---

    def run(self) -> RunResult:
        """Run the plan to its end; returns what became of each step. Ctrl-C ends it cleanly.

        Raises `StepError` before anything is claimed when a secret of a step has no value.
        """
        self._secrets = self._secret_values()
        self.store.check_writable()
        heartbeat = Heartbeat(self.claims)
        heartbeat.start()
        self._leases.start()
        self.log.plan(self.plan)
        for name, data in self.options.attachments.items():
            self.log.attach(name, data)
        self.log.event("run.started", **vars(self.claims.holder), argv=[mask_tokens(word) for word in sys.argv])
        pool = ThreadPoolExecutor(self.options.max_concurrent, thread_name_prefix="marin-step")
        result = RunResult(self.run_name, list(self._steps.values()))
        try:
            self._loop(pool)
        except KeyboardInterrupt:
            result.interrupted = True
            self._stop()
        except ClusterLost:
            self._stop()
            raise
        finally:
            pool.shutdown(wait=not result.interrupted, cancel_futures=True)
            if self._backend is not None:
                self._backend.close()
            for key, claim in list(self._held.items()):
                self._release(key, claim)
            counted = {"requests": dict(store.requests)} if isinstance(store := self.worker_store, CountedStore) else {}
            self.log.event("run.finished", interrupted=result.interrupted, succeeded=result.succeeded, **counted)
            self.log.flush()
            self._leases.stop()
            heartbeat.stop()
        return result

    def _loop(self, pool: ThreadPoolExecutor) -> None:
        self._order()
        while True:
            self._poll()
            while self._ready and self._at_work < self.options.max_concurrent:
                progress = self._ready.popleft()
                if progress.status is Status.pending:
                    progress.status = Status.running
                self._at_work += 1
                pool.submit(self._advance, progress)
            if self._backend_wanted.is_set() and self._backend is None:
                self._start_backend()
            if self._backend is not None:
                self._backend.check()
            if not self._at_work and not self._ready and not self._waiting:
                return
            self._take_in()
            self.log.flush_when_due()

    def _order(self) -> None:
        """Count for each step the upstreams that it waits for; those that wait for none are ready."""
        for progress in self._steps.values():
            above = [self._steps[id(up)] for up in progress.step.upstream if id(up) in self._steps]
            self._missing[id(progress)] = len(above)
            for one in above:
                self._dependents[id(one.step)].append(progress)
            if not above:
                self._ready.append(progress)

    def _poll(self) -> None:
        """Look again at steps that another run has, when their time has come."""
        now = time.monotonic()
        for progress in [one for one in self._waiting if one.poll_at <= now]:
            self._waiting.remove(progress)
            self._ready.append(progress)

    def _take_in(self) -> None:
        """Wait a moment for what steps say, and take all of it in."""
        try:
            word = self._inbox.get(timeout=TICK_SECONDS)
            while True:
                if word.ended:
                    self._at_work -= 1
                    self._settle(word.progress)
                elif word.message is not None:
                    self._pass_on(word.progress, word.message)
                word = self._inbox.get_nowait()
        except queue.Empty:
            return

    def _settle(self, progress: Progress) -> None:
        """Go on from a step that has come to an end, or that another run has."""
        if progress.status is Status.waiting:
            self._waiting.append(progress)
        elif progress.status not in (Status.done, Status.cached):
            if progress.status not in BROKEN:  # even its failure could not be told
                progress.status = Status.failed
            self._block(progress)
        else:
            for below in self._dependents[id(progress.step)]:
                self._missing[id(below)] -= 1
                if not self._missing[id(below)] and below.status is Status.pending:
                    self._ready.append(below)

    def _block(self, broken: Progress) -> None:
        """Block everything that depends on a step that will have no record; with fail_fast, everything."""
        if self.options.fail_fast:
            self._ready.clear()
            self._waiting.clear()
        stack = [broken]
        while stack:
            above = stack.pop()
            for below in self._dependents[id(above.step)]:
                if below.status is Status.pending:
                    self._set_blocked(below, above.step.display)
                    stack.append(below)
        if self.options.fail_fast:
            for progress in self._steps.values():
                if progress.status in (Status.pending, Status.waiting):
                    self._set_blocked(progress, "--fail-fast")

    def _set_blocked(self, progress: Progress, by: str) -> None:
        progress.status = Status.blocked
        progress.blocked_by = by
        self._tell(progress, f"needs {by}")

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

    def _pass_on(self, progress: Progress, message: dict[str, Any]) -> None:
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
        deadline = time.monotonic() + STOP_SECONDS
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

    def _secret_values(self) -> dict[int, SecretValues]:
        """The secrets of each step that has any."""
        wanted = {id(step): (step, secrets_in(step.call.arguments)) for step in self.plan.to_do()}
        named = [(f"{step.display}: {path}", secret) for step, found in wanted.values() for path, secret in found]
        values = secret_values(named, self.options.environment)
        for step in self.plan.to_do() if values else []:
            refuse_exposed(step.document, f"the recipe of {step.display}")
        return {
            key: SecretValues({secret.variable: values[secret.variable] for _, secret in found})
            for key, (_, found) in wanted.items()
            if found
        }

    # --- one step, in a thread ---

    def _advance(self, progress: Progress) -> None:
        """Bring a ready step to an end, or find out that another run has it."""
        try:
            if progress.status is not Status.waiting and self._input_is_unchanged(progress):
                return
            while not self._is_settled(progress):
                pass
        except BaseException as error:
            self._fail(progress, failure_of(error), attempt=progress.attempts)
        finally:
            try:
                self._let_go(progress)
            finally:
                self._inbox.put(Word(progress, ended=True))

    def _is_settled(self, progress: Progress) -> bool:
        """Take the step's claim and run it, unless its record is there; False when it needs one more generation."""
        step = progress.step
        generation = step.generation
        held = self.claims.take(step.name, step.identity, generation, step.folder)
        if isinstance(held, Holder):
            if self._is_made(progress):
                return True
            if step.generation == generation:
                self._wait_for(progress, held)
            return step.generation == generation
        self._held[id(step)] = held
        if self._is_made(progress):
            return True
        if step.generation != generation:
            self._release(id(step), held)
            return False
        self._run_claimed(progress, held)
        return True

    def _wait_for(self, progress: Progress, holder: Holder) -> None:
        progress.poll_at = time.monotonic() + POLL_SECONDS
        if progress.status is not Status.waiting:
            progress.status = Status.waiting
            self._tell(progress, f"run {holder.run} on {holder.host} has it")

    def _let_go(self, progress: Progress) -> None:
        """Give up the claim, if it was taken. One whose step has its record is over without a word."""
        claim = self._held.get(id(progress.step))
        if claim is None:
            return
        if progress.status in (Status.done, Status.cached):
            self._held.pop(id(progress.step), None)
        else:
            self._release(id(progress.step), claim)

    def _release(self, key: int, claim: Claim) -> None:
        """Let go of a claim. One that cannot be released now stays held, and is released when the run ends."""
        try:
            self.claims.release(claim)
        except Exception as error:  # clients have errors of their own
            logger.warning("the claim on %s could not be released: %s", claim.name, error)
        else:
            self._held.pop(key, None)

    def _input_is_unchanged(self, progress: Progress) -> bool:
        """Whether the step's earlier record still holds although an upstream was redone."""
        step = progress.step
        if step.action is not Action.check or changed_upstream(step, self.store, step.generation - 1) is not None:
            return False
        step.generation -= 1
        step.action = Action.cached
        progress.status = Status.cached
        self._tell(progress, "its input did not change")
        return True

    def _is_made(self, progress: Progress) -> bool:
        """Whether another run has made the record by now.

        One that it made from an earlier output of what this step reads does not answer: the next generation is due.
        """
        step = progress.step
        while self.store.exists(step.record_key):
            record = record_of(step, self.store)
            if is_made_from_what_lies_here(record, step, self.store):
                progress.status = Status.cached
                self._tell(progress, f"made by run {record.provenance.get('run', 'unknown')}")
                return True
            step.generation += 1
            step.record = None
        return False

    def _run_claimed(self, progress: Progress, claim: Claim) -> None:
        step = progress.step
        progress.status = Status.running
        progress.started = time.monotonic()
        self._tell(progress)
        origin = Origin(self.run_name, progress.attempts + 1, claim, time.time())
        equal = equal_work(step, self.store, origin, code_digest(step.call.step.function))
        if equal is not None:
            step.record = commit(step, self.store, equal, claim)
            progress.status = Status.done
            self._tell(progress, f"its input is that of {equal.provenance['alias_of']}, and so is its output")
            return
        backend = self._backend_for(progress)
        tries = dict.fromkeys(RETRY_BUDGET, 0)
        while True:
            progress.attempts += 1
            failure = self._attempt(progress, claim, backend)
            progress.seconds = time.monotonic() - progress.started
            if failure is None:
                progress.status = Status.done
                self._tell(progress)
                return
            kind = failure.kind
            if tries.get(kind, 0) >= RETRY_BUDGET.get(kind, 0) or self._stopping.is_set():
                self._fail(progress, failure, progress.attempts)
                return
            tries[kind] += 1
            self._tell(progress, f"{failure.message}; again ({kind.value} {tries[kind]})")
            self._stopping.wait(self.options.retry_pause * min(2 ** (tries[kind] - 1), 60))
            if self._is_made(progress):  # by a former holder, who was taken for dead and was only slow
                return
            if step.generation != claim.generation:
                progress.status = Status.waiting
                return

    def _attempt(self, progress: Progress, claim: Claim, backend: Backend) -> Failure | None:
        """Run the step once, and commit what comes out of it; returns why there is nothing to commit."""
        step = progress.step
        origin = Origin(self.run_name, progress.attempts, claim, time.time())
        task = self._task(step, claim, progress.attempts)
        self._leases.add(claim, backend)
        try:
            outcome = backend.run(task, self._report(progress))
        finally:
            lost = self._leases.remove(claim)
        self.log.log(f"{layout.flat(step.name)}-{layout.short(step.identity)}", progress.attempts, outcome.log)
        if outcome.failure is not None and lost is not None and not self._stopping.is_set():
            return failure_of(lost)
        if outcome.failure is None:
            step.record = commit(step, self.store, new_record(step, self.store, task, outcome, origin), claim)
        return outcome.failure

    def _lose(self, claim: Claim, backend: Backend) -> None:
        """End the work under a claim that another run has taken over."""
        logger.warning("%s was taken over by another run; its worker is ended", claim.name)
        backend.abort(claim)

    def _report(self, progress: Progress) -> Report:
        def report(message: dict[str, Any]) -> None:
            self._inbox.put(Word(progress, message))

        return report

    def _backend_for(self, progress: Progress) -> Backend:
        if progress.step.call.step.inline:
            return self._inline
        self._backend_wanted.set()
        self._inbox.put(Word(progress))
        while not self._backend_ready.wait(TICK_SECONDS):
            if self._stopping.is_set():
                raise Cancelled("the run is ending")
        if self._stopping.is_set() or self._backend is None:
            raise Cancelled("the run is ending")
        return self._backend

    def _task(self, step: PlannedStep, claim: Claim, attempt: int) -> StepTask:
        described = step.call.step
        spec = RunSpec(
            store=self.worker_store,
            run=self.run_name,
            name=step.name,
            display=step.display,
            step_folder=step.folder,
            attempt=attempt,
            claim=claim,
            fleet=step.call.fleet or Fleet(),
            code_digest=code_digest(described.function),
            fans_out=described.fans_out,
            secrets=self._secrets.get(id(step), SecretValues()),
        )
        by_call = {id(call_of(artifact)): up for _, artifact, up in upstream_of(step)}

        def materialise(artifact: Artifact) -> Artifact:
            up = by_call.get(id(call_of(artifact)))
            if up is None:
                return artifact
            return materialise_record(
                up.store or self.worker_store, record_of(up, self.store), up.call.step.result_type
            )

        arguments = {name: resolve(value, materialise) for name, value in step.call.arguments.items()}
        return StepTask(spec, described.function, arguments, described.result_type, described.cpus, described.memory_gb)

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
