"""How closely a run is watched. Nothing here changes what the run computes. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from marin.execution import Secret
from marin.execution.fields import refuse_infinite


class OnDifference(StrEnum):
    """What happens when two copies of a parameter are not bit-equal."""

    STOP = "stop"
    """The run ends with an error; its last checkpoints may already hold the difference."""
    WARN = "warn"
    """The difference is logged and counted in the metrics."""


@dataclass(frozen=True)
class StallBudgets:
    """How long a rank may stand still, in minutes, before its stacks are kept and the gang is started again.

    Any change of phase (data, forward, backward, optimizer, of any micro-batch) is progress, and so is a batch of an
    evaluation. Evaluations and checkpoints have budgets of their own.
    """

    startup_minutes: float = 45.0
    """Until the first step of a process is done: restore, compilation, first batches."""
    step_minutes: float = 15.0
    validation_minutes: float = 45.0
    checkpoint_minutes: float = 45.0
    together_seconds: float = 30.0
    """How long a rank that found itself stalled waits for the stacks of the others before it ends the gang."""

    def __post_init__(self) -> None:
        refuse_infinite(self, "watch.stall.")
        for name in ("startup_minutes", "step_minutes", "validation_minutes", "checkpoint_minutes"):
            if getattr(self, name) <= 0:
                raise ValueError(
                    f"watch.stall.{name} is {getattr(self, name)}; give minutes above 0, or set watch.stall to null "
                    "for no watchdog"
                )
        if self.together_seconds < 0:
            raise ValueError(f"watch.stall.together_seconds is {self.together_seconds}; give 0 or more")


@dataclass(frozen=True)
class WandbConfig:
    """Metrics to Weights & Biases as well; needs the extra `wandb`."""

    project: str
    mode: str = "offline"
    """`offline` keeps the run in a local folder, which `wandb sync` sends later; `online` sends it."""

    def __post_init__(self) -> None:
        if not self.project:
            raise ValueError("watch.wandb.project is empty; name a project, or set watch.wandb to null")
        if self.mode not in ("offline", "online"):
            raise ValueError(f"watch.wandb.mode is {self.mode!r}; give 'offline' or 'online'")


@dataclass(frozen=True)
class WatchConfig:
    """What is measured beside every step, how often, and who is told."""

    activations_every: int = 100
    """Steps between two measurements of activation ranges, 0 for none."""
    norms_every: int = 10
    """Steps between two measurements of gradient and weight norms by group, 0 for none."""
    checksums_every: int = 500
    """Steps between two comparisons of what several ranks hold copies of, 0 for none."""
    checksum_difference: OnDifference = OnDifference.STOP
    live_seconds: float = 5.0
    """The metrics of the running segment are put into the store this often, for people; 0 for never."""
    stall: StallBudgets | None = StallBudgets()
    """None for no watchdog."""
    alerts: str | None = None
    """A rules file that rank 0 can read; null for the rules of operations/alerts.yaml."""
    webhook: Secret | None = None
    """The variable that holds the URL to which alerts are posted."""
    wandb: WandbConfig | None = None

    def __post_init__(self) -> None:
        refuse_infinite(self, "watch.")
        for name in ("activations_every", "norms_every", "checksums_every", "live_seconds"):
            if getattr(self, name) < 0:
                raise ValueError(f"watch.{name} is {getattr(self, name)}; give 0 for never, or more")


@dataclass(frozen=True)
class ProfileWindow:
    """The steps that are profiled."""

    start: int
    """First step, counted from 1. After a restart behind it nothing is profiled."""
    steps: int = 3

    def __post_init__(self) -> None:
        for name in ("start", "steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"profile.{name} is {getattr(self, name)}; give at least 1")


def due(every: int, step: int) -> bool:
    """Whether something that happens each `every` steps happens at `step`; never when `every` is 0."""
    return every > 0 and step % every == 0
