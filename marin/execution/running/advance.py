"""One step of a run, brought to its end: claimed, tried until there is an outcome, committed, let go.

Each step is advanced in a thread of its own. What it comes to stands in its `Progress`.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from marin.execution import layout
from marin.execution.artifact import Artifact, call_of
from marin.execution.code_digest import code_digest
from marin.execution.failures import RETRY_BUDGET, FailureClass
from marin.execution.fleet import Fleet
from marin.execution.planning.plan import Action, PlannedStep, changed_upstream, record_of
from marin.execution.records import materialise_record
from marin.execution.running.backends import Backends
from marin.execution.running.claims import Claim, Claims, Holder
from marin.execution.running.commit import (
    Origin,
    commit,
    equal_work,
    is_made_from_what_lies_here,
    new_record,
    upstream_of,
)
from marin.execution.running.inline import Backend
from marin.execution.running.progress import Progress, Status
from marin.execution.running.resolve import resolve
from marin.execution.running.runlog import RunLog
from marin.execution.running.tasks import Report, RunSpec
from marin.execution.running.watch import LeaseWatch
from marin.execution.running.worker import Failure, StepTask, failure_of
from marin.execution.secrets import SecretValues
from marin.storage import Store

POLL_SECONDS = 1.0
"""Between two looks at a step that another run has."""
LONG_ATTEMPT_SECONDS = 1800.0
"""A step that worked for so long was no failed start: its tries are counted anew."""
LONGEST_PAUSE = 60
"""The longest pause before another try, in units of the first."""

logger = logging.getLogger(__name__)


class Tell(Protocol):
    """Says that a step's status changed."""

    def __call__(self, progress: Progress, text: str = "") -> None: ...


@dataclass(eq=False)
class Advance:
    """What all steps of a run share while they are advanced.

    `store` outlasts a silent store and is for the driver's own requests; `worker_store` is what workers are given.
    `held` are the claims of steps at work, by the step's id.
    """

    run: str
    store: Store
    worker_store: Store
    claims: Claims
    leases: LeaseWatch
    log: RunLog
    backends: Backends
    secrets: Mapping[int, SecretValues]
    retry_pause: float
    stopping: threading.Event
    tell: Tell
    report_to: Callable[[Progress], Report]
    held: dict[int, Claim] = field(default_factory=dict)

    def advance(self, progress: Progress) -> None:
        """Bring a ready step to an end, or find out that another run has it."""
        try:
            if progress.status is not Status.waiting and self._input_is_unchanged(progress):
                return
            while not self._is_settled(progress):
                pass
        except BaseException as error:
            self._fail(progress, failure_of(error), attempt=progress.attempts)
        finally:
            self._let_go(progress)

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
        self.held[id(step)] = held
        if self._is_made(progress):
            return True
        if step.generation != generation:
            self.release(id(step), held)
            return False
        self._run_claimed(progress, held)
        return True

    def _wait_for(self, progress: Progress, holder: Holder) -> None:
        progress.poll_at = time.monotonic() + POLL_SECONDS
        if progress.status is not Status.waiting:
            progress.status = Status.waiting
            self.tell(progress, f"run {holder.run} on {holder.host} has it")

    def _let_go(self, progress: Progress) -> None:
        """Give up the claim, if it was taken. One whose step has its record is over without a word."""
        claim = self.held.get(id(progress.step))
        if claim is None:
            return
        if progress.status in (Status.done, Status.cached):
            self.held.pop(id(progress.step), None)
        else:
            self.release(id(progress.step), claim)

    def release(self, key: int, claim: Claim) -> None:
        """Let go of a claim. One that cannot be released now stays held, and is released when the run ends."""
        try:
            self.claims.release(claim)
        except Exception as error:  # clients have errors of their own
            logger.warning("the claim on %s could not be released: %s", claim.name, error)
        else:
            self.held.pop(key, None)

    def _input_is_unchanged(self, progress: Progress) -> bool:
        """Whether the step's earlier record still holds although an upstream was redone."""
        step = progress.step
        if step.action is not Action.check or changed_upstream(step, self.store, step.generation - 1) is not None:
            return False
        step.generation -= 1
        step.action = Action.cached
        progress.status = Status.cached
        self.tell(progress, "its input did not change")
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
                self.tell(progress, f"made by run {record.provenance.get('run', 'unknown')}")
                return True
            step.generation += 1
            step.record = None
        return False

    def _run_claimed(self, progress: Progress, claim: Claim) -> None:
        step = progress.step
        progress.status = Status.running
        progress.started = time.monotonic()
        self.tell(progress)
        origin = Origin(self.run, progress.attempts + 1, claim, time.time())
        equal = equal_work(step, self.store, origin, code_digest(step.call.step.function))
        if equal is not None:
            step.record = commit(step, self.store, equal, claim)
            progress.status = Status.done
            self.tell(progress, f"its input is that of {equal.provenance['alias_of']}, and so is its output")
            return
        backend = self.backends.give(inline=step.call.step.inline)
        tries = dict.fromkeys(RETRY_BUDGET, 0)
        while True:
            progress.attempts += 1
            begun = time.monotonic()
            failure = self._attempt(progress, claim, backend)
            if time.monotonic() - begun >= LONG_ATTEMPT_SECONDS:
                tries = dict.fromkeys(RETRY_BUDGET, 0)
            progress.seconds = time.monotonic() - progress.started
            if failure is None:
                progress.status = Status.done
                self.tell(progress)
                return
            kind = failure.kind
            if tries.get(kind, 0) >= RETRY_BUDGET.get(kind, 0) or self.stopping.is_set():
                self._fail(progress, failure, progress.attempts)
                return
            tries[kind] += 1
            self.tell(progress, f"{failure.message}; again ({kind.value} {tries[kind]})")
            self.stopping.wait(self.retry_pause * min(2 ** (tries[kind] - 1), LONGEST_PAUSE))
            if self._is_made(progress):  # by a former holder, who was taken for dead and was only slow
                return
            if step.generation != claim.generation:
                progress.status = Status.waiting
                return

    def _attempt(self, progress: Progress, claim: Claim, backend: Backend) -> Failure | None:
        """Run the step once, and commit what comes out of it; returns why there is nothing to commit."""
        step = progress.step
        origin = Origin(self.run, progress.attempts, claim, time.time())
        task = self._task(step, claim, progress.attempts)
        self.leases.add(claim, backend)
        try:
            outcome = backend.run(task, self.report_to(progress))
        finally:
            lost = self.leases.remove(claim)
        self.log.log(f"{layout.flat(step.name)}-{layout.short(step.identity)}", progress.attempts, outcome.log)
        if outcome.failure is not None and lost is not None and not self.stopping.is_set():
            return failure_of(lost)
        if outcome.failure is None:
            step.record = commit(step, self.store, new_record(step, self.store, task, outcome, origin), claim)
        return outcome.failure

    def _task(self, step: PlannedStep, claim: Claim, attempt: int) -> StepTask:
        described = step.call.step
        spec = RunSpec(
            store=self.worker_store,
            run=self.run,
            name=step.name,
            display=step.display,
            step_folder=step.folder,
            attempt=attempt,
            claim=claim,
            fleet=step.call.fleet or Fleet(),
            code_digest=code_digest(described.function),
            fans_out=described.fans_out,
            secrets=self.secrets.get(id(step), SecretValues()),
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
        if failure.kind is FailureClass.lease and not self.stopping.is_set():
            progress.status = Status.waiting
            progress.poll_at = time.monotonic() + POLL_SECONDS
            self.tell(progress, failure.message)
            return
        progress.failure = failure
        cancelled = failure.kind is FailureClass.cancelled or self.stopping.is_set()
        progress.status = Status.cancelled if cancelled else Status.failed
        if not cancelled:
            body = {**dataclasses.asdict(failure), "kind": failure.kind.value, "step": step.name, "time": time.time()}
            key = layout.failure_key(step.name, step.identity, self.run, attempt)
            self.log.failure(key, body)
        self.tell(progress, f"{failure.error}: {failure.message}")
