"""What a run saves of itself, when, and how it goes on from it."""

from __future__ import annotations

import datetime
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from marin.checkpoint.background import BackgroundSaver, Failed, Saved
from marin.checkpoint.completeness import FoundCheckpoint
from marin.checkpoint.errors import CheckpointError
from marin.checkpoint.identity import check_identity
from marin.checkpoint.progress import Progress
from marin.checkpoint.ranks import Ranks
from marin.checkpoint.rehearsal import rehearse_restore
from marin.checkpoint.state_folder import StateFolder
from marin.checkpoint.store import CheckpointStore
from marin.checkpoint.tensors import announce_loaded, create_optimizer_state, model_tensors, optimizer_tensors
from marin.execution import StepError, derive_seed
from marin.training.config import TrainingConfig
from marin.training.hooks import Hooks
from marin.training.metrics import MetricsLog
from marin.training.process_group import RankContext
from marin.training.random_state import random_state, restore_random_state
from marin.training.throughput import PhaseClock
from marin.training.trainee import Trainee

logger = logging.getLogger(__name__)

BEFORE_EVALUATION = "before an evaluation"
PERMANENT = "permanent"
ROLLING = "rolling"

BACKGROUND_TIMEOUT = datetime.timedelta(hours=1)
"""How long a rank's background thread waits for that of another one, which may be writing to a slow store."""
LEAVE_SECONDS = 60.0
"""How long a run that is to end early tries to save its last state."""
CLOSE_GRACE_SECONDS = 60.0
"""How long an ending process waits for a save under way."""


class Standing(Protocol):
    """What of a loop is saved beside its tensors; `TrainingLoop` is one."""

    first_step: int
    """Steps that count as made when the run begins."""
    begins_with_state: bool
    """Whether the optimizer has state before its first update."""
    step: int
    tokens: int
    updates: int
    skipped_in_a_row: int
    validations: list[dict[str, Any]]
    metrics: MetricsLog
    trainee: Trainee
    ranks: RankContext
    training: TrainingConfig
    clock: PhaseClock
    hooks: Hooks

    def parts(self) -> dict[str, dict[str, Any]]:
        """State of the stateful parts beside the model (hooks, guards) by name; JSON, equal on every rank."""

    def restore_parts(self, parts: Mapping[str, dict[str, Any]]) -> None:
        """Inverse of `parts`. Raises StepError for a name that no part of this run has."""


class SavingRun(Protocol):
    """What of the run around the loop is needed here."""

    @property
    def state(self) -> StateFolder: ...

    def check_lease(self) -> None: ...


class Saver:
    """Saves and restores one loop. All ranks call every method but `close` and `figures` together."""

    def __init__(
        self,
        loop: Standing,
        run: SavingRun,
        identity: Mapping[str, Any],
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._loop = loop
        self._run = run
        self._identity = dict(identity)
        self._now = now
        self.policy = loop.training.checkpoints
        self.store = CheckpointStore(
            run.state,
            check_lease=run.check_lease,
            ranks=loop.ranks.ranks,
            keep_last=self.policy.keep_last,
            verify_digests=self.policy.verify_digests,
        )
        self._background = BackgroundSaver(
            self.store, _apart(loop.ranks), self.policy, read_back_first=self.policy.rehearse, now=now
        )
        self._last_save = now()
        self._due_by_time = False
        self._figures: dict[str, Any] = {}
        self.newest: FoundCheckpoint | None = None
        """The newest checkpoint that is complete, of this life or the one that it resumed from."""

    # When

    def due(self, step: int) -> str | None:
        """Why the state after `step` steps is to be saved, None when it is not."""
        if step in self._loop.training.validated_steps:
            return BEFORE_EVALUATION
        if self._is_permanent(step):
            return PERMANENT
        every = self.policy.every_steps
        by_time = self._due_by_time and not self._background.writing
        return ROLLING if by_time or (every is not None and step % every == 0) else None

    def _is_permanent(self, step: int) -> bool:
        every = self.policy.permanent_every_steps
        return every is not None and step > 0 and step % every == 0

    # Saving

    def save(self, step: int, reason: str) -> None:
        """Copies everything after `step` steps and begins to write it; metrics first, so that a complete checkpoint
        implies its metrics.

        It waits for a save that is still being written. Before an evaluation, and where saves are not asynchronous,
        it waits for this one too, until it is complete or has failed once.
        """
        loop = self._loop
        with loop.clock.phase("checkpoint"):
            if self._background.writing:
                waited = time.perf_counter()
                self.settle()
                self._tell("step %d waited %.2f s for the save before", step, time.perf_counter() - waited)
            staging = self._background.begin(
                self.tensors(),
                self.snapshot(),
                permanent=self._is_permanent(step),
                before=loop.metrics.flush,
            )
            self._last_save, self._due_by_time = self._now(), False
            self._figures["staging_seconds"] = staging
            size = self._background.copy.size
            self._tell("saving step %d (%s): %.1f MB a rank copied in %.3f s", step, reason, size / 1e6, staging)
            if reason == BEFORE_EVALUATION or not self.policy.asynchronous:
                self.settle()

    def poll(self) -> None:
        """Called at every border of steps: takes note of what is written, begins another attempt where one is due, and
        raises what failed for good, on all ranks together. Free while nothing is being saved and no minutes count.
        """
        if self._background.busy or self.policy.every_minutes is not None:
            self._look()

    def settle(self) -> None:
        """Until no attempt is under way; one that failed is repeated later."""
        while self._background.writing:
            self._background.pause()
            self._look()

    def wait(self, limit_seconds: float | None = None) -> None:
        """Until the last state is saved. Raises CheckpointError when that fails for good, or for `limit_seconds`."""
        started = self._now()
        while self._background.busy:
            with self._loop.clock.phase("checkpoint"):  # a wait for another attempt is progress, one that hangs is not
                self.settle()
                self._background.pause()
                self._look(past_limit=limit_seconds is not None and self._now() - started > limit_seconds)

    def leave(self) -> None:
        """`wait` for a run that is to end early: a store in trouble does not hold it, the last complete one counts."""
        try:
            self.wait(LEAVE_SECONDS)
        except CheckpointError as error:
            self._warn("the run ends without its last state: %s", error)

    def close(self) -> None:
        """Called on every exit: lets a save under way end, within reason. No collective."""
        self._background.close(CLOSE_GRACE_SECONDS)

    def figures(self) -> dict[str, Any]:
        """What is new since the last call, for the line of a step: seconds that training waited for a copy, the step
        that was saved and the seconds that writing it took, or the step that could not be.
        """
        figures, self._figures = self._figures, {}
        return {"checkpoint": figures} if figures else {}

    def permanent(self) -> tuple[FoundCheckpoint, ...]:
        """Every complete permanent checkpoint of the run, oldest first, one a step."""
        complete = self.store.ranks.from_first(lambda: self.store.survey().complete)
        newest = {found.step: found for found in reversed(complete) if found.permanent}
        return tuple(newest[step] for step in sorted(newest))

    def _look(self, past_limit: bool = False) -> None:
        minutes = self.policy.every_minutes
        by_time = minutes is not None and self._now() - self._last_save >= minutes * 60
        news = self._background.poll(due=by_time, past_limit=past_limit)
        self._due_by_time = news.due
        if isinstance(news.event, Saved):
            self._took(news.event)
        elif isinstance(news.event, Failed):
            self._missed(news.event)

    def _took(self, event: Saved) -> None:
        self.newest = event.found
        self._figures |= {"saved_step": event.found.step, "writing_seconds": event.seconds, "bytes": event.found.size}
        self._tell("saved step %d: %.1f MB written in %.2f s", event.found.step, event.found.size / 1e6, event.seconds)
        self._loop.hooks.saved(event.found)

    def _missed(self, event: Failed) -> None:
        self._figures |= {"failed_step": event.step, "failed_attempts": event.attempts}
        message = "step %d could not be saved (attempt %d); training goes on, next attempt in %.0f s: %s"
        self._warn(message, event.step, event.attempts, event.pause_seconds, event.reason)
        self._loop.hooks.save_failed(event.step, event.attempts, event.reason)

    def _tell(self, message: str, *values: object) -> None:
        if self._loop.ranks.rank == 0:
            logger.info(message, *values)

    def _warn(self, message: str, *values: object) -> None:
        if self._loop.ranks.rank == 0:
            logger.warning(message, *values)

    # Restoring

    def rehearse(self) -> None:
        """Before the first step of a run: proves that its state can be restored. Leaves everything as it was."""
        if self.policy.rehearse and self._loop.step == self._loop.first_step:
            trainee = self._loop.trainee
            rehearse_restore(self.store, self._background.copy, trainee.model, trainee.optimizer, self.snapshot())

    def resume(self) -> FoundCheckpoint | None:
        """Restores the newest complete checkpoint of this run, if there is one."""
        found = self.store.newest()
        if found is None:
            return None
        loop, started = self._loop, time.perf_counter()
        progress = self.store.read_progress(found)
        check_identity(progress.identity, self._identity, found.describe())
        first = loop.training.batches.first(progress.step)
        if progress.next_sequence != first:
            raise StepError(
                f"the {found.describe()} goes on at sequence {progress.next_sequence}, but after step {progress.step} "
                f"this run is at {first}; go on with the batch sizes that it was made with"
            )
        if progress.updates or loop.begins_with_state:
            create_optimizer_state(loop.trainee.optimizer)
        self.store.load(found, self.tensors())
        announce_loaded(loop.trainee.model)
        loop.step, loop.tokens = progress.step, progress.tokens
        loop.updates, loop.skipped_in_a_row = progress.updates, progress.skipped_in_a_row
        loop.validations = list(progress.validations)
        loop.metrics = MetricsLog(self._run.state, progress.metrics)
        loop.restore_parts(progress.parts)
        self._restore_random(progress)
        if loop.ranks.rank == 0:
            seconds = time.perf_counter() - started
            logger.info("resumed from the %s in %.2f s; next is step %d", found.describe(), seconds, loop.step + 1)
        self.newest = found
        return found

    def tensors(self) -> dict[str, Tensor]:
        """Everything that a checkpoint holds as tensors."""
        trainee = self._loop.trainee
        return model_tensors(trainee.model) | optimizer_tensors(trainee.model, trainee.optimizer)

    def snapshot(self) -> Progress:
        """Everything else. Ends the metrics segment on rank 0; `metrics.flush` makes it durable."""
        loop = self._loop
        return Progress(
            step=loop.step,
            next_sequence=loop.training.batches.first(loop.step),
            tokens=loop.tokens,
            updates=loop.updates,
            skipped_in_a_row=loop.skipped_in_a_row,
            metrics=loop.metrics.cut() if loop.ranks.rank == 0 else (),
            validations=tuple(loop.validations),
            random_states=tuple(loop.ranks.ranks.gather(random_state(loop.ranks.device))),
            identity=self._identity,
            parts=loop.parts(),
        )

    def _restore_random(self, progress: Progress) -> None:
        """Each rank's generators where they stood; after a change of the ranks, seeded from the step."""
        loop = self._loop
        if len(progress.random_states) == loop.ranks.world_size:
            restore_random_state(progress.random_states[loop.ranks.rank], loop.ranks.device)
        else:
            torch.manual_seed(derive_seed(loop.training.seed, f"rank {loop.ranks.rank} from step {loop.step}"))


def _apart(ranks: RankContext) -> Ranks:
    """The same ranks over a gloo group that only the background threads use."""
    group = dist.new_group(backend="gloo", timeout=BACKGROUND_TIMEOUT)
    return Ranks(rank=ranks.rank, world_size=ranks.world_size, group=group)
