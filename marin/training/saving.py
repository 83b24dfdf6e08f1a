"""What a run saves of itself, and how it goes on from it."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from marin.checkpoint.completeness import FoundCheckpoint
from marin.checkpoint.progress import Progress, check_identity
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


class Standing(Protocol):
    """What of a loop is saved beside its tensors; `TrainingLoop` is one."""

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
    """Saves and restores one loop. Every method is called by all ranks together."""

    def __init__(self, loop: Standing, run: SavingRun, identity: Mapping[str, Any]) -> None:
        self._loop = loop
        self._run = run
        self._identity = dict(identity)
        self.policy = loop.training.checkpoints
        self.store = CheckpointStore(
            run.state,
            check_lease=run.check_lease,
            ranks=loop.ranks.ranks,
            keep_last=self.policy.keep_last,
            verify_digests=self.policy.verify_digests,
        )

    def due(self, step: int) -> str | None:
        """Why the state after `step` steps is to be saved, None when it is not."""
        if step in self._loop.training.validation.steps(self._loop.training.steps):
            return "before an evaluation"
        return "rolling" if step % self.policy.every_steps == 0 else None

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
        if progress.updates:
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
        return found

    def save(self, step: int, reason: str) -> FoundCheckpoint:
        """Saves everything after `step` steps; metrics first, so that a complete checkpoint implies its metrics."""
        started = time.perf_counter()
        with self._loop.clock.phase("checkpoint"):
            saved = self.store.save(self.tensors(), self.snapshot())
        self._loop.hooks.saved(saved)
        if self._loop.ranks.rank == 0:
            size = sum(file.size for file in saved.mark.files)
            logger.info(
                "saved step %d (%s): %.1f MB in %.2f s", step, reason, size / 1e6, time.perf_counter() - started
            )
        return saved

    def poll(self) -> None:
        """Finishes what is written, and raises what failed for good."""

    def wait(self) -> None:
        """Until nothing is being written."""

    def tensors(self) -> dict[str, Tensor]:
        """Everything that a checkpoint holds as tensors."""
        trainee = self._loop.trainee
        return model_tensors(trainee.model) | optimizer_tensors(trainee.model, trainee.optimizer)

    def snapshot(self) -> Progress:
        """Everything else. Closes the metrics segment on rank 0."""
        loop = self._loop
        return Progress(
            step=loop.step,
            next_sequence=loop.training.batches.first(loop.step),
            tokens=loop.tokens,
            updates=loop.updates,
            skipped_in_a_row=loop.skipped_in_a_row,
            metrics=loop.metrics.close_segment() if loop.ranks.rank == 0 else (),
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
