"""The beginning of a run from the checkpoint of another: what is loaded, and where steps and data go on."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from marin.checkpoint.artifacts import Checkpoint
from marin.checkpoint.config import Part
from marin.checkpoint.identity import check_identity
from marin.checkpoint.partial import Source, load_part
from marin.checkpoint.progress import Progress
from marin.tokens.mixture.batches import BatchSchedule
from marin.tokens.mixture.packing import Batch
from marin.training.continuation import InitConfig, Take
from marin.training.process_group import RankContext
from marin.training.random_state import restore_random_state
from marin.training.trainee import Trainee

logger = logging.getLogger(__name__)

PART = "origin"
"""Under which a run's checkpoints keep where it came from."""


class Beginning(Protocol):
    """What of a loop is set at its beginning; `TrainingLoop` is one."""

    step: int
    tokens: int
    updates: int
    identity: dict[str, Any]
    trainee: Trainee
    ranks: RankContext


class NumberedSequences(Protocol):
    """Sequences by their global number, and the documents of each."""

    def batch(self, first: int, count: int) -> Batch: ...

    def documents(self, place: int) -> list[str]: ...


@dataclass(frozen=True)
class Origin:
    """A checkpoint that a run begins from, and its own account of itself."""

    checkpoint: Checkpoint
    config: InitConfig
    progress: Progress

    @classmethod
    def read(cls, checkpoint: Checkpoint, config: InitConfig) -> Origin:
        """Reads what the checkpoint says of itself."""
        return cls(checkpoint, config, Source.published(checkpoint, config.at_step).progress())

    @property
    def first_step(self) -> int:
        """Steps that count as made when the run begins."""
        return self.progress.step if self.config.schedule is Take.CONTINUED else 0

    @property
    def takes_optimizer(self) -> bool:
        """Whether the optimizer's state is taken over; there is none before the first update."""
        return self.config.optimizer is Take.CONTINUED and self.progress.updates > 0

    def data_offset(self, batches: BatchSchedule) -> int:
        """What is added to the number of a sequence of the run, counted by its own batches, to find it in its data."""
        if self.config.data is Take.FRESH:
            return -batches.first(self.first_step)
        before = self.progress.parts.get(PART, {}).get("data_offset", 0)
        return self.progress.next_sequence + int(before) - batches.first(self.first_step)

    def check(self, identity: Mapping[str, Any]) -> None:
        """Raises IdentityMismatch with the settings that differ from those of the checkpoint's run and may not."""
        check_identity(self.progress.identity, identity, self.describe(), self.config.allowed)

    def describe(self) -> str:
        """The checkpoint as people call it."""
        return f"checkpoint of step {self.progress.step} of {self.checkpoint.identity[:10]}"

    def begin(self, loop: Beginning) -> None:
        """Loads what is taken over, and sets where the run stands. Collective."""
        trainee, kept = loop.trainee, self.takes_optimizer
        source = replace(Source.published(self.checkpoint, self.config.at_step), where=self.describe())
        report = load_part(source, trainee.model, trainee.optimizer, self._part(loop.identity), group=loop.ranks.group)
        if kept:
            trainee.restore(self.progress.parts)
        if self.config.schedule is Take.CONTINUED:
            loop.step, loop.tokens, loop.updates = self.progress.step, self.progress.tokens, self.progress.updates
            states = self.progress.random_states
            if len(states) == loop.ranks.world_size:
                restore_random_state(states[loop.ranks.rank], loop.ranks.device)
        if loop.ranks.rank == 0:
            logger.info("%s; next is step %d", report.describe(), loop.step + 1)

    def _part(self, identity: Mapping[str, Any]) -> Part:
        """What is loaded: of another kind of optimizer only what both kinds keep."""
        if not self.takes_optimizer:
            return Part.WEIGHTS
        kinds = [one["optimizer"]["kind"] for one in (self.progress.identity, identity)]
        return Part.ALL if kinds[0] == kinds[1] else Part.WEIGHTS_AND_FITTING_OPTIMIZER

    def state(self, batches: BatchSchedule) -> dict[str, Any]:
        """What the run's own checkpoints say of where it came from."""
        return {
            "checkpoint": self.checkpoint.identity,
            "step": self.progress.step,
            "data_offset": self.data_offset(batches),
            **{name: getattr(self.config, name).value for name in ("optimizer", "schedule", "data")},
        }


@dataclass(frozen=True)
class ShiftedSequences:
    """Sequences of a source whose numbers are `offset` higher."""

    source: NumberedSequences
    offset: int

    def batch(self, first: int, count: int) -> Batch:
        """The sequences from `first` on."""
        return self.source.batch(first + self.offset, count)

    def documents(self, place: int) -> list[str]:
        """Ids of the documents of one sequence."""
        return self.source.documents(place + self.offset)
