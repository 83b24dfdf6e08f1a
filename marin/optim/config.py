"""Optimizer, learning-rate rule, schedule and guards as data and closed formulas. Imports nothing heavy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from marin.execution import added
from marin.execution.fields import refuse_infinite

WARMUP_SHARE = 0.01
FINAL_SHARE = 0.05
MAXIMUM_RATE = 0.05
MUON_TO_ADAM = 13 / 3


@dataclass(frozen=True)
class RecipeRates:
    """What the recipe derives from a token budget."""

    adam: float
    muonh: float
    """Peak rate of the MuonH and AdamH groups."""
    eps: float
    beta1: float
    beta2: float


def recipe_rates(*, tokens: float, batch_tokens: float, width: int) -> RecipeRates:
    """Peak learning rates and Adam constants for a run of `tokens` in batches of `batch_tokens` at model `width`."""
    for name, value in (("tokens", tokens), ("batch_tokens", batch_tokens), ("width", width)):
        if not 0 < value < math.inf:
            raise ValueError(f"{name} is {value}; the learning-rate rule needs a positive number")
    adam = 0.087571 * tokens**-0.3461 * width**-0.3448 * math.sqrt(batch_tokens)
    return RecipeRates(
        adam=min(adam, MAXIMUM_RATE),
        muonh=min(MUON_TO_ADAM * adam, MAXIMUM_RATE),
        eps=9.676e-18 * math.sqrt(tokens / batch_tokens),
        beta1=0.9062,
        beta2=min(max(0.999 ** (batch_tokens / 131_072), 0.95), 0.9999),
    )


class ScheduleShape(StrEnum):
    """How the learning rate falls after its warm-up."""

    LINEAR = "linear"
    """Straight from the peak to the end."""
    COSINE = "cosine"
    """Half a cosine from the peak to the end."""
    WSD = "wsd"
    """Warm-up, stable, decay: the peak holds, then the rate falls straight over the last share of the run."""


@dataclass(frozen=True)
class Schedule:
    """Linear warm-up, constant, decay: the share of the peak rate at a step.

    Step s (from 0) of the warm-up has (s + 1) / warmup_steps, so the peak is reached in its last step; step s of the
    decay has the share that is left, from 1 at its first step to `final_share` after its last. The decay is straight,
    or half a cosine when `shape` is that; what makes a wsd schedule is that it begins late.
    """

    total_steps: int
    warmup_steps: int
    decay_steps: int
    final_share: float = 0.0
    shape: ScheduleShape = added(ScheduleShape.LINEAR, since="2026-11-30")

    def __post_init__(self) -> None:
        if self.total_steps < 1:
            raise ValueError(f"total_steps is {self.total_steps}; a run has at least one step")
        if self.warmup_steps < 0 or self.decay_steps < 0:
            raise ValueError(f"warmup_steps {self.warmup_steps} and decay_steps {self.decay_steps} must be 0 or more")
        if self.warmup_steps + self.decay_steps > self.total_steps:
            raise ValueError(
                f"warmup_steps {self.warmup_steps} and decay_steps {self.decay_steps} overlap in a run of total_steps "
                f"{self.total_steps}; shorten one of them"
            )
        if not 0 <= self.final_share <= 1:
            raise ValueError(f"final_share is {self.final_share}; give a share of the peak, from 0 to 1")

    @classmethod
    def recipe(cls, total_steps: int) -> Schedule:
        """Warm-up over 1% of the steps (at least one), then linear decay to 5% of the peak."""
        warmup = min(max(1, round(WARMUP_SHARE * total_steps)), max(0, total_steps - 1))
        return cls(total_steps, warmup, total_steps - warmup, FINAL_SHARE)

    def share(self, step: int) -> float:
        """Share of the peak rate at `step` (from 0); `final_share` after the end."""
        if step < 0:
            raise ValueError(f"step is {step}; steps count from 0")
        if step >= self.total_steps:
            return self.final_share
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        if step < self.total_steps - self.decay_steps:
            return 1.0
        left = (self.total_steps - step) / self.decay_steps
        if self.shape is ScheduleShape.COSINE:
            left = 0.5 - 0.5 * math.cos(math.pi * left)
        return self.final_share + (1.0 - self.final_share) * left


class OptimizerKind(StrEnum):
    """Which rules update the parameters."""

    ADAMW = "adamw"
    MUONH = "muonh"
    """The recipe's three groups: MuonH for matrices, AdamH for the head, Adam for the rest."""
    ADAFACTOR = "adafactor"
    """Factored second moments, no momentum; `learning_rate` is relative to a parameter's root mean square."""
    LION = "lion"
    """The sign of a momentum; a third to a tenth of AdamW's rate, and as much more decay."""


@dataclass(frozen=True)
class OptimizerConfig:
    """One rule over all parameters, or the recipe's three groups."""

    learning_rate: float
    """Peak rate of a plain rule, or of the recipe's Adam group; the schedule multiplies it."""
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.1
    """Plain rules: decoupled decay of the matrices that mix channels."""
    kind: OptimizerKind = OptimizerKind.ADAMW
    muonh_ratio: float = MUON_TO_ADAM
    """muonh: peak rate of the MuonH and AdamH groups over `learning_rate`; their rate is at most 0.05."""
    momentum: float = 0.95
    """muonh: Nesterov momentum of the matrices."""
    gate_decay: float = 0.02
    """muonh: decoupled decay of router weights and head gates; it anneals linearly to 0 at the last step."""

    def __post_init__(self) -> None:
        refuse_infinite(self)
        if not 0 < self.learning_rate < 10:
            raise ValueError(f"learning_rate is {self.learning_rate}; give a positive peak rate below 10")
        for name in ("beta1", "beta2", "momentum"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; give a number from 0 up to, but below, 1")
        for name in ("eps", "muonh_ratio"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be positive")
        for name in ("weight_decay", "gate_decay"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; give 0 to switch it off")

    @classmethod
    def recipe(cls, *, tokens: float, batch_tokens: float, width: int) -> OptimizerConfig:
        """The three groups with the rates and constants that the recipe derives from a token budget."""
        rates = recipe_rates(tokens=tokens, batch_tokens=batch_tokens, width=width)
        return cls(
            learning_rate=rates.adam,
            beta1=rates.beta1,
            beta2=rates.beta2,
            eps=rates.eps,
            kind=OptimizerKind.MUONH,
            muonh_ratio=rates.muonh / rates.adam,
        )

    @property
    def muonh_rate(self) -> float:
        """Peak rate of the MuonH and AdamH groups."""
        return min(self.muonh_ratio * self.learning_rate, MAXIMUM_RATE)


@dataclass(frozen=True)
class GuardConfig:
    """When an update is skipped although everything is finite: a loss or gradient norm that is an outlier."""

    deviations: float | None = None
    """Skip what lies more than this many standard deviations above the mean of the last steps; 6 is usual, None (the
    recipe's) skips no outlier.
    """
    window: int = 128
    """Steps that the mean and deviation are taken over; nothing is skipped before half of them are known."""

    def __post_init__(self) -> None:
        refuse_infinite(self, "guard.")
        if self.deviations is not None and self.deviations <= 0:
            raise ValueError(f"guard.deviations is {self.deviations}; give a positive number, or null to skip none")
        if self.window < 2:
            raise ValueError(f"guard.window is {self.window}; a deviation takes at least 2 steps")


@dataclass(frozen=True)
class LossScaleConfig:
    """Factor of the loss when matrices are multiplied in fp16; without effect in other types."""

    initial: float = 2.0**16
    growth: float = 2.0
    backoff: float = 0.5
    interval: int = 2000
    """Steps without overflow after which the factor grows."""
    least: float = 1.0
    """An overflow at this factor counts as a gradient that is not finite."""
    most: float = 2.0**24

    def __post_init__(self) -> None:
        refuse_infinite(self, "loss_scale.")
        if not 0 < self.least <= self.initial <= self.most:
            raise ValueError(
                f"loss_scale has least {self.least}, initial {self.initial} and most {self.most}; they must be "
                "positive and in this order"
            )
        if not (self.growth > 1 and 0 < self.backoff < 1):
            raise ValueError(
                f"loss_scale has growth {self.growth} and backoff {self.backoff}; give more than 1, and less than 1"
            )
        if self.interval < 1:
            raise ValueError(f"loss_scale.interval is {self.interval}; give at least 1 step")
