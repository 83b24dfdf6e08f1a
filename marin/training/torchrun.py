"""The ranks that a launcher such as torchrun started, as the machines on which the one step `model/pretrain` runs.

Rank 0 claims the step, carries out its body and commits its record, as every run does; the body's gang is the
processes that are there already. So a run under torchrun and one under Ray are the same step with the same state, and
either goes on from what the other left.
"""

from __future__ import annotations

import dataclasses
import datetime
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch.distributed as dist

from marin.execution import Artifact, Fleet, Plan, Preempted, Runner, RunOptions, StepError, StopRequest, make_plan
from marin.execution.failures import Cancelled, FailureClass
from marin.execution.running.claims import Claim
from marin.execution.running.context import run_rank
from marin.execution.running.progress import Status
from marin.execution.running.scratch import scratch_folder
from marin.execution.running.tasks import RankOutcome, Report, RunSpec, ShardOutcome, ShardTask
from marin.execution.running.worker import Outcome, StepTask, execute
from marin.storage import Store, StoreError
from marin.training.environment import RankEnvironment
from marin.training.process_group import RankContext
from marin.training.stopping import EXIT_CODE

LONGEST_WAIT = datetime.timedelta(days=7)
"""How long ranks wait for rank 0 to begin: another run may hold the step."""

logger = logging.getLogger(__name__)

Work = tuple[RunSpec, str, Callable[[Any], Any], Any]
"""What all ranks do: (attempt, folder of the gang's files, entry, payload)."""


def run_step(call: Artifact, store: Store, ranks: RankContext, stop: StopRequest, *, force: bool = False) -> int:
    """Brings a step to its end on these ranks; called by all of them. Returns the exit code of this process.

    0: the record is there. 1: it failed. `EXIT_CODE`: it was asked to end, and saved; started again, it goes on.
    """
    channel = dist.new_group(backend="gloo", timeout=LONGEST_WAIT)
    if ranks.rank == 0:
        backend = StartedRanks(ranks, channel, stop)
        try:
            code = _run_and_tell(make_plan([call], store, force="." if force else None), store, backend)
        except (StepError, StoreError) as error:
            logger.error("%s", error)
            code = 1
        finally:
            had_work = backend.dismiss()
        if had_work and code != 1:  # after an error other ranks may never come
            dist.barrier(group=channel)
        return code
    work: list[Work | None] = [None]
    dist.broadcast_object_list(work, src=0, group=channel)
    if work[0] is None:
        return 0
    code = 0
    try:
        outcome = one_rank(work[0], ranks, stop, lambda progress: None)
    except Preempted as error:
        logger.warning("%s", error)
        code = EXIT_CODE
    else:
        dist.gather_object(outcome, None, dst=0, group=channel)
    dist.barrier(group=channel)  # a launcher ends all ranks when one has ended, and rank 0 has a claim to release
    return code


def _run_and_tell(plan: Plan, store: Store, backend: StartedRanks) -> int:
    """Runs the plan's one step from rank 0; returns the exit code."""
    display = plan.targets[0].display
    if not plan.to_do():
        logger.info("%s is there already", display)
        return 0
    result = Runner(store, plan, RunOptions(max_concurrent=1), lambda: backend).run()
    for progress in result.failures:
        if progress.failure is not None:
            failure = progress.failure
            logger.error("%s: %s%s", failure.error, failure.message, "" if failure.expected else f"\n{failure.trace}")
    if result.succeeded:
        logger.info("%s is done", display)
        return 0
    return EXIT_CODE if any(one.status is Status.cancelled for one in result.steps) else 1


def one_rank(work: Work, ranks: RankContext, stop: StopRequest, report: Report) -> RankOutcome:
    """This process's part of the gang."""
    spec, folder, entry, payload = work
    with scratch_folder() as scratch:
        return run_rank(spec, f"{folder}/rank{ranks.rank}", entry, payload, scratch, report, stop)


class StartedRanks:
    """The back end of rank 0's run: steps in its own process, and one gang of the ranks that were started with it."""

    def __init__(self, ranks: RankContext, channel: dist.ProcessGroup, stop: StopRequest) -> None:
        self._ranks = ranks
        self._channel = channel
        self._stop = stop
        self._called = False

    def run(self, task: StepTask, report: Report) -> Outcome:
        """The step's outcome. No failure is tried again here: the other ranks may be gone, and only the launcher can
        start all of them.
        """
        outcome = execute(task, report, self)
        failure = outcome.failure
        if failure is None or failure.kind in (FailureClass.cancelled, FailureClass.lease):
            return outcome
        return dataclasses.replace(outcome, failure=dataclasses.replace(failure, kind=FailureClass.error))

    def gang(
        self, spec: RunSpec, entry: Callable[[Any], Any], payload: Any, report: Report, sizes: Sequence[int] = ()
    ) -> list[RankOutcome]:
        """The ranks that were started, whatever their number: `sizes` are for those who can choose."""
        if self._called:
            raise StepError("the ranks that a launcher started make up one gang; start them again for another")
        self._called = True
        work: Work = (spec, f"{spec.attempt_folder}/torchrun", entry, payload)
        dist.broadcast_object_list([work], src=0, group=self._channel)
        try:
            outcome = one_rank(work, self._ranks, self._stop, report)
        except Preempted as error:
            logger.warning("%s", error)
            raise Cancelled(str(error)) from None
        outcomes: list[Any] = [None] * self._ranks.world_size
        dist.gather_object(outcome, outcomes, dst=0, group=self._channel)
        return outcomes

    def dismiss(self) -> bool:
        """Lets the other ranks go when there was nothing for them to do; returns whether there was."""
        had_work, self._called = self._called, True
        if not had_work:
            dist.broadcast_object_list([None], src=0, group=self._channel)
        return had_work

    def map(self, spec: RunSpec, tasks: Sequence[ShardTask]) -> Iterator[tuple[int, ShardOutcome]]:
        """No step that is run here has shards."""
        raise StepError(f"{spec.display} calls run.map, which ranks of torchrun do not serve")

    def stop(self, reason: str) -> None:
        """Asks this rank to save and to end; the ranks agree on it."""
        self._stop.set(reason)

    def abort(self, claim: Claim) -> None:
        """The lease is lost: the ranks end at their next border, and what they write no longer counts."""
        self._stop.set("another run took the step over")

    def cancel(self) -> None:
        """Asks this rank to end."""
        self._stop.set("the run is ending")

    def check(self) -> None:
        """The launcher ends all ranks when one is gone."""

    def close(self) -> None:
        """The ranks are the launcher's."""


def fleet_of(environment: RankEnvironment) -> Fleet:
    """The ranks that were started, as the fleet of the step."""
    cores = len(os.sched_getaffinity(0)) / environment.local_world_size
    return Fleet(workers=environment.world_size, cpus_per_worker=max(1.0, cores // 1))
