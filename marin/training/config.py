"""Everything that decides a training run, validated. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, field

from marin.checkpoint.config import CheckpointPolicy
from marin.execution import added, runtime
from marin.execution.fields import refuse_infinite
from marin.model.config import ComputeConfig
from marin.optim.config import (
    FINAL_SHARE,
    WARMUP_SHARE,
    GuardConfig,
    LossScaleConfig,
    OptimizerConfig,
    Schedule,
    ScheduleShape,
)
from marin.parallel.config import OverlapConfig, ParallelPlan, Precision, Recompute
from marin.tokens.mixture.batches import BatchChange, BatchSchedule, check_batch_changes
from marin.tokens.mixture.config import LoaderConfig
from marin.training.watch.config import ProfileWindow, WatchConfig


@dataclass(frozen=True)
class ValidationGrid:
    """When the held-out loss is measured, and on how much."""

    percents: tuple[float, ...] = (25.0, 50.0, 75.0)
    """Percents of the run, so that curves of different lengths can be laid over each other; the end is always
    measured.
    """
    sequences: int = 128
    """At most this many sequences of each held-out source, its first ones."""

    def __post_init__(self) -> None:
        for percent in self.percents:
            if not 0 <= percent <= 100:
                raise ValueError(f"validation.percents has {percent}; give percents of the run, from 0 to 100")
        if self.sequences < 1:
            raise ValueError(f"validation.sequences is {self.sequences}; give at least 1 sequence of each source")

    def steps(self, total: int) -> frozenset[int]:
        """The steps (counted from 1) after which the held-out loss is measured; 0 is before the first step."""
        return frozenset({round(total * percent / 100) for percent in self.percents} | {total})


@dataclass(frozen=True)
class TrainingConfig:
    """One training run. Sequence length, z-loss weight and vocabulary are the model's."""

    steps: int
    batch_sequences: int
    """Sequences of the global batch, over all ranks and micro-batches; up to the first of `batch_changes`."""
    optimizer: OptimizerConfig
    batch_changes: tuple[BatchChange, ...] = ()
    """Steps from which on the global batch has another size. The stream of sequences stays the same."""
    warmup_share: float = WARMUP_SHARE
    """Share of the steps in which the learning rate rises to its peak."""
    schedule_shape: ScheduleShape = added(ScheduleShape.LINEAR, since="2026-11-30")
    """How the learning rate falls after that."""
    decay_share: float = added(0.2, since="2026-11-30")
    """wsd: share of the steps in which the learning rate falls, the last ones."""
    final_share: float = FINAL_SHARE
    """Share of the peak rate that is left at the end."""
    end_step: int | None = added(None, since="2026-11-30")
    """The run ends after this step of its schedule, as a trial of a change does; null for all `steps`."""
    gradient_clip: float | None = None
    """Largest global gradient norm, None for the recipe's: no clipping."""
    seed: int = 0
    precision: Precision = Precision.AUTO
    validation: ValidationGrid = field(default_factory=ValidationGrid)
    skips_in_a_row: int = 5
    """The run ends with an error after this many consecutive steps with a non-finite loss or gradient."""
    guard: GuardConfig = added({"deviations": None, "window": 128}, since="2026-11-30", default=GuardConfig())
    """When a step is skipped although everything is finite."""
    loss_scale: LossScaleConfig = added(
        {"initial": 65536.0, "growth": 2.0, "backoff": 0.5, "interval": 2000, "least": 1.0, "most": 16777216.0},
        since="2026-11-30",
        default=LossScaleConfig(),
    )
    """fp16: the factor of the loss."""
    micro_batch_sequences: int | None = runtime(None)
    """Sequences that a rank takes through the model at once, None for its whole part of the batch."""
    parallel: ParallelPlan = runtime(ParallelPlan())
    recompute: Recompute = runtime(Recompute.NONE)
    compute: ComputeConfig = runtime(ComputeConfig())
    overlap: OverlapConfig = runtime(OverlapConfig())
    optimizer_on_host: bool = runtime(False)
    """Keep the optimizer's state in host memory and bring it to the device piece by piece."""
    checkpoints: CheckpointPolicy = runtime(CheckpointPolicy())
    loader: LoaderConfig = runtime(LoaderConfig())
    watch: WatchConfig = runtime(WatchConfig())
    profile: ProfileWindow | None = runtime(None)
    """Steps whose work is recorded operator by operator, null for none."""
    debug_numerics: bool = runtime(False)
    """Repeat the steps from the last checkpoint in fp32, measuring every module at every step, and end with an error
    that names the first module whose output is not finite. Nothing is saved.
    """
    log_every: int = runtime(10)
    """Steps between two lines of the log; metrics have one line a step whatever this is."""

    def __post_init__(self) -> None:
        refuse_infinite(self)
        for name in ("steps", "batch_sequences", "skips_in_a_row", "log_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; give at least 1")
        if self.end_step is not None and not 1 <= self.end_step <= self.steps:
            raise ValueError(f"end_step is {self.end_step}; give a step of the run, 1 to {self.steps}, or null for all")
        check_batch_changes(self.batch_changes, self.steps, "batch_changes")
        if self.micro_batch_sequences is not None and self.micro_batch_sequences < 1:
            raise ValueError(
                f"micro_batch_sequences is {self.micro_batch_sequences}; give at least 1, or null for all at once"
            )
        if not 0 <= self.warmup_share < 1:
            raise ValueError(
                f"warmup_share is {self.warmup_share}; give a share of the steps, from 0 up to, but below, 1"
            )
        if not 0 < self.decay_share <= 1:
            raise ValueError(f"decay_share is {self.decay_share}; give a share of the steps, above 0 and up to 1")
        if self.schedule_shape is ScheduleShape.WSD and self.warmup_share + self.decay_share > 1:
            raise ValueError(
                f"warmup_share {self.warmup_share} and decay_share {self.decay_share} are more than the whole run "
                "together; shorten one of them"
            )
        if not 0 <= self.final_share <= 1:
            raise ValueError(f"final_share is {self.final_share}; give a share of the peak rate, from 0 to 1")
        if self.gradient_clip is not None and self.gradient_clip <= 0:
            raise ValueError(f"gradient_clip is {self.gradient_clip}; give a positive norm, or null for no clipping")

    @property
    def schedule(self) -> Schedule:
        """The learning-rate curve: linear warm-up, then decay to `final_share` in the shape that is configured."""
        warmup = 0
        if self.warmup_share > 0:
            warmup = min(max(1, round(self.warmup_share * self.steps)), max(0, self.steps - 1))
        decay = self.steps - warmup
        if self.schedule_shape is ScheduleShape.WSD:
            decay = min(decay, max(1, round(self.decay_share * self.steps)))
        return Schedule(self.steps, warmup, decay, self.final_share, self.schedule_shape)

    @property
    def last_step(self) -> int:
        """The step after which the run ends."""
        return self.steps if self.end_step is None else self.end_step

    @property
    def validated_steps(self) -> frozenset[int]:
        """The steps after which the held-out loss is measured: those of the grid up to the last, and that one."""
        grid = self.validation.steps(self.steps)
        return frozenset(step for step in grid if step <= self.last_step) | {self.last_step}

    @property
    def batches(self) -> BatchSchedule:
        """The sequences of every step."""
        return BatchSchedule(self.batch_sequences, self.batch_changes)

    @property
    def sequences(self) -> int:
        """Sequences of all `steps`."""
        return self.batches.first(self.steps)

    def rank_sequences(self, world_size: int, step: int = 0) -> int:
        """Sequences of the global batch of a step (counted from 0) that one of `world_size` ranks reads; raises
        ValueError when they do not divide, at this step or another.
        """
        for size in self.batches.sizes:
            if size % world_size:
                fitting = [n for n in range(1, world_size + 1) if all(other % n == 0 for other in self.batches.sizes)]
                name = "batch_sequences" if size == self.batch_sequences else "batch_changes: a size"
                raise ValueError(
                    f"{name} is {size} on {world_size} ranks: every rank reads an equal part of the global batch; use "
                    f"a multiple of {world_size}, or {' or '.join(map(str, fitting))} ranks"
                )
        return self.batches.size(step) // world_size

    def micro_batches(self, world_size: int, step: int = 0) -> tuple[tuple[int, int], ...]:
        """The (start, count) of each micro-batch inside a rank's part of a step's batch; the last may be smaller."""
        part = self.rank_sequences(world_size, step)
        size = min(self.micro_batch_sequences or part, part)
        return tuple((start, min(size, part - start)) for start in range(0, part, size))
