"""What the step hands to every rank, and what rank 0 hands back. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from marin.checkpoint.artifacts import Checkpoint
from marin.checkpoint.identity import as_json
from marin.checkpoint.progress import MetricsSegment
from marin.model.config import ModelConfig
from marin.tokens.mixture.artifacts import Mixture
from marin.tokens.shards.artifacts import TokenShards
from marin.training.config import TrainingConfig
from marin.training.continuation import InitConfig


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """One run for a gang of ranks. Pickles."""

    mixture: Mixture
    heldout: dict[str, TokenShards]
    model: ModelConfig
    training: TrainingConfig
    init: Checkpoint | None = None
    """The checkpoint that the run begins from."""
    init_config: InitConfig = InitConfig()

    def identity(self) -> dict[str, Any]:
        """What a checkpoint of this job belongs to; any difference is refused on a restore."""
        own = run_identity(self.model, self.training, self.mixture.identity)
        if self.init is None:
            return own
        return {**own, "init": {"checkpoint": self.init.identity, **as_json(self.init_config)}}


def run_identity(model: ModelConfig, training: TrainingConfig, mixture: str) -> dict[str, Any]:
    """The fields that fix what step s of a run computes: model, data order, optimizer and schedule."""
    guard = {"guard": as_json(training.guard)} if training.guard.deviations is not None else {}
    return {
        "model": as_json(model),
        "mixture": mixture,
        "seed": training.seed,
        "batch_sequences": training.batch_sequences,
        "batch_changes": as_json(training.batch_changes),
        "optimizer": as_json(training.optimizer),
        "schedule": as_json(training.schedule),
        "gradient_clip": training.gradient_clip,
        **guard,
    }


@dataclass(frozen=True, kw_only=True)
class PublishedFile:
    """A file of the final checkpoint: its name inside it, where it lies in the store, and its digest."""

    name: str
    key: str
    sha256: str | None


@dataclass(frozen=True, kw_only=True)
class PermanentCheckpoint:
    """A permanent checkpoint of a run: the files of the state after `step` steps."""

    step: int
    files: tuple[PublishedFile, ...]


@dataclass(frozen=True, kw_only=True)
class TrainingOutcome:
    """What a finished run left in the resumable state."""

    first_step: int
    """Steps that counted as made when the run began."""
    step: int
    tokens: int
    skipped_steps: int
    checkpoint: tuple[PublishedFile, ...]
    permanent: tuple[PermanentCheckpoint, ...]
    metrics: tuple[MetricsSegment, ...]
    validations: tuple[dict[str, Any], ...]
    unigram_losses: dict[str, float]
    peak_flops: float
    """Measured matrix-product FLOP/s of all ranks together."""
    flops_per_token: int
