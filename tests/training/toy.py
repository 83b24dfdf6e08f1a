"""A toy run: a model of a few thousand parameters on counting sequences, with the seams that the tests need."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from marin.checkpoint.config import CheckpointPolicy
from marin.model.config import BalancingConfig, ModelConfig
from marin.optim.config import OptimizerConfig
from marin.parallel.config import ParallelPlan
from marin.tokens.mixture.loader import Batch
from marin.training.config import TrainingConfig, ValidationGrid
from marin.training.job import run_identity

VOCABULARY = 32
LENGTH = 12
COMPONENTS = ("even", "odd")


def toy_model(**sizes: Any) -> ModelConfig:
    """Every part of the model, as small as it goes."""
    shape: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "head_dim": 8,
        "experts": 4,
        "experts_per_token": 2,
        "shared_experts": 1,
        "sequence_length": LENGTH,
        "gate_rank": 4,
        "balancing": BalancingConfig(bins=200),
    }
    return ModelConfig.shaped(width=16, layers=2, **(shape | sizes))


def toy_training(**fields: Any) -> TrainingConfig:
    """Twelve steps of eight sequences, saved every four."""
    values: dict[str, Any] = {
        "steps": 12,
        "batch_sequences": 8,
        "optimizer": OptimizerConfig(3e-3),
        "warmup_share": 0.2,
        "validation": ValidationGrid(percents=(), sequences=6),
        "checkpoints": CheckpointPolicy(every_steps=4, keep_last=3),
    }
    return TrainingConfig(**(values | fields))


class ToySource:
    """Sequence k counts upwards from a start that only k decides, in two documents; some of its places have no loss."""

    def batch(self, first: int, count: int) -> Batch:
        return toy_batch(range(first, first + count))


def toy_batch(numbers: range) -> Batch:
    """The sequences of these numbers."""
    rows = [np.random.default_rng([7, number]) for number in numbers]
    shape = (len(rows), LENGTH)
    stream = np.zeros((len(rows), LENGTH + 1), dtype=np.int64)
    segments = np.zeros(shape, dtype=np.int32)
    positions = np.zeros(shape, dtype=np.int64)
    mask = np.ones(shape, dtype=np.bool_)
    for row, random in enumerate(rows):
        border, hidden = int(random.integers(2, LENGTH - 1)), int(random.integers(0, 5))
        starts, strides = random.integers(0, VOCABULARY, 2), random.integers(1, 3, 2)
        places = np.arange(LENGTH + 1)
        stream[row] = np.where(
            places < border, starts[0] + strides[0] * places, starts[1] + strides[1] * (places - border)
        )
        segments[row, border:] = 1
        positions[row] = np.where(places[:-1] < border, places[:-1], places[:-1] - border)
        mask[row, border - 1] = False
        mask[row, LENGTH - hidden :] = False
    stream %= VOCABULARY
    return Batch(
        tokens=stream[:, :-1].copy(),
        targets=stream[:, 1:].copy(),
        segments=segments,
        positions=positions,
        loss_mask=mask,
        components=np.array([number % 2 for number in numbers], dtype=np.int16),
        epochs=np.zeros(len(rows), dtype=np.int64),
        sequences=np.array(numbers, dtype=np.int64),
        repeats=np.zeros(len(rows), dtype=np.int32),
    )


def toy_heldout(count: int, size: int, sequences: int) -> Iterator[Batch]:
    """`count` sequences that no run trains on, at most the first `sequences` of them, `size` at a time."""
    first, count = 1_000_000, min(count, sequences)
    for start in range(0, count, size):
        yield toy_batch(range(first + start, first + min(start + size, count)))


@dataclass(frozen=True)
class Signalled:
    """Where one rank waits for a signal: it writes its process id to `note` and goes on when it was asked to stop.

    `place` is "step", "evaluation" or "save"; `after` the number of finished steps then, but for the evaluation, which
    is the one after that step.
    """

    place: str
    after: int
    rank: int
    note: str


@dataclass(frozen=True)
class ToyTask:
    """One gang's life. `stop_after`: raise after the step's metrics, as a kill between two saves would."""

    prefix: str
    epoch: int = 1
    model: ModelConfig = field(default_factory=toy_model)
    training: TrainingConfig = field(default_factory=toy_training)
    plan: ParallelPlan | None = None
    heldout: tuple[tuple[str, int], ...] = (("letters", 5),)
    stop_after: int | None = None
    poison: tuple[tuple[int, int], ...] = ()
    """(step, rank) pairs whose objective is multiplied by `poison_factor`."""
    poison_factor: float = float("inf")
    double: bool = True
    mixture: str = "toy"
    watched: bool = False
    """With the hooks that every real run has."""
    hooks: tuple[Any, ...] = ()
    """Hooks before these; they pickle."""
    signalled: Signalled | None = None


@dataclass(frozen=True)
class ToyResult:
    """What a rank saw. `lines` are the final metrics, `steps` what this life itself did."""

    lines: list[dict[str, Any]]
    validations: list[dict[str, Any]]
    weights: str
    steps: list[tuple[int, list[int], str, str]]
    """Step, the sequence numbers that this rank read, and the digest of its weights before and after."""
    tokens: int
    skipped: int
    bias: list[list[float]]
    peak_flops: float


class Stopped(Exception):
    """The end of a life that is to be resumed."""


def train_toy(task: ToyTask) -> ToyResult:
    """One rank of a toy run."""
    import torch

    from marin.training.environment import RankEnvironment
    from marin.training.hooks import Hook
    from marin.training.loop import TrainingLoop
    from marin.training.metrics import read_segments
    from marin.training.process_group import process_group
    from marin.training.stopping import signals_to
    from marin.training.trainee import build_trainee
    from marin.training.validation import HeldOutText
    from marin.training.watch.build import watch_hooks
    from tests.checkpoint.holder import holder
    from tests.training.waiting import WaitsForSignal

    steps: list[tuple[int, list[int], str, str]] = []

    class ToyLoop(TrainingLoop):
        def total_loss(self, step: int, result: Any) -> torch.Tensor:
            total = super().total_loss(step, result)
            return total * task.poison_factor if (step, self.ranks.rank) in task.poison else total

        def train_step(self) -> None:
            numbers = [int(n) for batch in self._batches(self.step) for n in batch.sequences]
            before = digest(self.trainee.model)
            super().train_step()
            steps.append((self.step, numbers, before, digest(self.trainee.model)))
            if self.step == task.stop_after:
                raise Stopped(f"after step {self.step}")

    with process_group(RankEnvironment.read()) as ranks:
        plan = task.plan or ParallelPlan(dp_shard=ranks.world_size)
        training = _with_plan(task.training, plan)
        run = holder(task.prefix, epoch=task.epoch, workers=ranks.world_size)
        batches = {name: partial(toy_heldout, count) for name, count in task.heldout}
        hooks: list[Hook] = []
        if task.signalled is not None and task.signalled.rank == ranks.rank:
            waiting = WaitsForSignal(task.signalled, run.stop)
            batches = {name: partial(waiting.heldout, of_source) for name, of_source in batches.items()}
            hooks = [waiting]
        elif task.signalled is not None:
            hooks = [WaitsForSignal(None, run.stop)]
        trainee = build_trainee(task.model, training, ranks, dtype=torch.float64 if task.double else torch.float32)
        loop = ToyLoop(
            model=task.model,
            training=training,
            identity=run_identity(task.model, training, task.mixture),
            source=ToySource(),
            components=COMPONENTS,
            heldout={
                name: HeldOutText(batches[name], tokens=count * LENGTH + 1, text_bytes=3 * count * LENGTH)
                for name, count in task.heldout
            },
            trainee=trainee,
            ranks=ranks,
            run=run,
            hooks=[*task.hooks, *hooks, *(watch_hooks(training, ranks, run, "toy") if task.watched else ())],
        )
        with signals_to(run.stop):
            result = loop.run()
        return ToyResult(
            lines=list(read_segments(run.state.store, result.progress.metrics)) if ranks.rank == 0 else [],
            validations=list(result.progress.validations),
            weights=digest(trainee.model),
            steps=steps,
            tokens=result.progress.tokens,
            skipped=result.progress.step - result.progress.updates,
            bias=[router.bias.tolist() for router in trainee.model.routers()],
            peak_flops=result.peak_flops,
        )


def digest(model: Any) -> str:
    """Of everything that this rank holds of the model."""
    from marin.checkpoint.tensors import local_part

    found = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        found.update(name.encode() + local_part(tensor).contiguous().numpy().tobytes())
    return found.hexdigest()


def _with_plan(training: TrainingConfig, plan: ParallelPlan) -> TrainingConfig:
    from dataclasses import replace

    return replace(training, parallel=plan)
