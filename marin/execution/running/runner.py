"""The runner: executes a plan, step by step, and leaves records.

For each step: claim it (or wait for whoever holds it), run it in the back end, check its evidence, create its record.
Independent steps run at the same time. A failed step blocks what depends on it and nothing else.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from marin.execution.failures import ClusterLost
from marin.execution.plain_text import mask_tokens
from marin.execution.planning.plan import Plan, PlannedStep
from marin.execution.redaction import refuse_exposed
from marin.execution.running.advance import Advance
from marin.execution.running.backends import Backends
from marin.execution.running.claims import Claim, Claims
from marin.execution.running.inline import Backend
from marin.execution.running.patience import PatientStore
from marin.execution.running.progress import BROKEN, Observer, Progress, RunResult, Silent, Status
from marin.execution.running.runlog import RunLog, new_run
from marin.execution.running.schedule import Schedule
from marin.execution.running.tasks import Report
from marin.execution.running.watch import Heartbeat, LeaseWatch
from marin.execution.secrets import SecretValues, secret_values, secrets_in
from marin.storage import CountedStore, Store

TICK_SECONDS = 0.2
STOP_SECONDS = 5.0

logger = logging.getLogger(__name__)


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


@dataclass(frozen=True)
class Word:
    """What a thread tells the loop: how far a step is, that it has ended, or only that there is something to do."""

    progress: Progress | None = None
    message: dict[str, Any] = field(default_factory=dict)
    ended: bool = False


def secrets_of(steps: list[PlannedStep], environment: Mapping[str, str]) -> dict[int, SecretValues]:
    """The secrets of each step that has any, by the step's id; raises `StepError` when one has no value."""
    wanted = {id(step): (step, secrets_in(step.call.arguments)) for step in steps}
    named = [(f"{step.display}: {path}", secret) for step, found in wanted.values() for path, secret in found]
    values = secret_values(named, environment)
    for step in steps if values else []:
        refuse_exposed(step.document, f"the recipe of {step.display}")
    return {
        key: SecretValues({secret.variable: values[secret.variable] for _, secret in found})
        for key, (_, found) in wanted.items()
        if found
    }


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
        self.worker_store = store
        self._stopping = threading.Event()
        self.store = PatientStore(store, self._stopping)
        self.claims = Claims(self.store, self.run_name, options.stale_after)
        self.log = RunLog(self.store, self.run_name)
        self._inbox: queue.SimpleQueue[Word] = queue.SimpleQueue()
        self._backends = Backends(make_backend, self._stopping, lambda: self._inbox.put(Word()))
        self._leases = LeaseWatch(self.store, _lose)
        self._steps = [Progress(step) for step in plan.to_do()]

    def run(self) -> RunResult:
        """Run the plan to its end; returns what became of each step. Ctrl-C ends it cleanly.

        Raises `StepError` before anything is claimed when a secret of a step has no value.
        """
        advance = self._advance(secrets_of(self.plan.to_do(), self.options.environment))
        self.store.check_writable()
        heartbeat = Heartbeat(self.claims)
        heartbeat.start()
        self._leases.start()
        self.log.plan(self.plan)
        for name, data in self.options.attachments.items():
            self.log.attach(name, data)
        self.log.event("run.started", **vars(self.claims.holder), argv=[mask_tokens(word) for word in sys.argv])
        pool = ThreadPoolExecutor(self.options.max_concurrent, thread_name_prefix="marin-step")
        result = RunResult(self.run_name, self._steps)
        try:
            self._loop(pool, advance)
        except KeyboardInterrupt:
            result.interrupted = True
            self._let_save()
            self._stop(advance)
        except ClusterLost:
            self._stop(advance)
            raise
        finally:
            pool.shutdown(wait=not result.interrupted, cancel_futures=True)
            self._backends.close()
            for key, claim in list(advance.held.items()):
                advance.release(key, claim)
            counted = {"requests": dict(store.requests)} if isinstance(store := self.worker_store, CountedStore) else {}
            self.log.event("run.finished", interrupted=result.interrupted, succeeded=result.succeeded, **counted)
            self.log.flush()
            self._leases.stop()
            heartbeat.stop()
        return result

    def _advance(self, secrets: Mapping[int, SecretValues]) -> Advance:
        return Advance(
            run=self.run_name,
            store=self.store,
            worker_store=self.worker_store,
            claims=self.claims,
            leases=self._leases,
            log=self.log,
            backends=self._backends,
            secrets=secrets,
            retry_pause=self.options.retry_pause,
            stopping=self._stopping,
            tell=self._tell,
            report_to=self._report_to,
        )

    # --- the loop ---

    def _loop(self, pool: ThreadPoolExecutor, advance: Advance) -> None:
        at_once = self.options.max_concurrent
        is_local = self.worker_store.local_path("_") is not None
        schedule = Schedule(self._steps, at_once, 1 if is_local else at_once, fail_fast=self.options.fail_fast)

        def work(progress: Progress) -> None:
            try:
                advance.advance(progress)
            finally:
                self._inbox.put(Word(progress, ended=True))

        while not schedule.is_over:
            while (progress := schedule.next()) is not None:
                if progress.status is Status.pending:
                    progress.status = Status.running
                pool.submit(work, progress)
            self._backends.start_if_wanted()
            self._take_in(schedule)
            self.log.flush_when_due()
        if any(progress.status in BROKEN for progress in self._steps):
            self._backends.check()  # the machines that were lost ended the last step before they were asked for

    def _take_in(self, schedule: Schedule) -> None:
        """Wait a moment for what steps say, and take all of it in."""
        try:
            word = self._inbox.get(timeout=TICK_SECONDS)
            while True:
                if word.progress is not None and word.ended:
                    self._settle(word.progress, schedule)
                elif word.progress is not None:
                    self._pass_on(word.progress, word.message)
                word = self._inbox.get_nowait()
        except queue.Empty:
            return

    def _settle(self, progress: Progress, schedule: Schedule) -> None:
        """Go on from a step that has come to an end, or that another run has."""
        settled = (Status.waiting, Status.done, Status.cached, *BROKEN)
        if progress.status not in settled:  # even its failure could not be told
            progress.status = Status.failed
        for blocked in schedule.ended(progress):
            self._tell(blocked, f"needs {blocked.blocked_by}")

    def _let_save(self) -> None:
        """Give gangs their time to save what they have. Whoever interrupts a second time does not want to wait."""
        self._stopping.set()
        for progress in self._steps:
            step = progress.step.call
            if progress.status is Status.running and step.step.fans_out and step.fleet is not None:
                self._tell(progress, f"saves, for up to {step.fleet.stop_seconds:g} s; interrupt again to end at once")
        with contextlib.suppress(KeyboardInterrupt):
            self._backends.stop("the run is interrupted")

    def _stop(self, advance: Advance) -> None:
        self._stopping.set()
        self._backends.cancel()
        deadline = time.monotonic() + STOP_SECONDS
        while advance.held and time.monotonic() < deadline:
            time.sleep(0.05)
        for progress in self._steps:
            if progress.status in (Status.pending, Status.waiting, Status.running):
                progress.status = Status.cancelled

    # --- who is told ---

    def _report_to(self, progress: Progress) -> Report:
        def report(message: dict[str, Any]) -> None:
            if "event" in message:
                self._happened(progress, message)
            else:
                self._inbox.put(Word(progress, message))

        return report

    def _happened(self, progress: Progress, message: Mapping[str, Any]) -> None:
        """Keep and show what happened inside a step: an event with its `text` for people, and facts."""
        facts = {key: value for key, value in message.items() if key != "event"}
        step = progress.step
        self.log.event(message["event"], step=step.name, identity=step.identity, **facts)
        self._show(progress, str(message.get("text", "")))

    def _pass_on(self, progress: Progress, message: dict[str, Any]) -> None:
        progress.latest = message
        try:
            self.observer.advanced(progress)
        except Exception as error:
            logger.warning("the progress of %s could not be shown: %s", progress.step.display, error)

    def _tell(self, progress: Progress, text: str = "") -> None:
        step = progress.step
        self.log.event(
            f"step.{progress.status.name}",
            step=step.name,
            identity=step.identity,
            label=step.call.label,
            seconds=round(progress.seconds, 3),
            text=text,
            **({"remarks": step.record.remarks} if step.record is not None and step.record.remarks else {}),
        )
        self._show(progress, text)

    def _show(self, progress: Progress, text: str) -> None:
        try:
            self.observer.changed(progress, text)
        except Exception as error:  # such as a terminal that was closed: no step fails for that
            logger.warning("the state of %s could not be shown: %s", progress.step.display, error)


def _lose(claim: Claim, backend: Backend) -> None:
    """End the work under a claim that another run has taken over."""
    logger.warning("%s was taken over by another run; its worker is ended", claim.name)
    backend.abort(claim)
