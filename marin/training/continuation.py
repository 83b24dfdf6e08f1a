"""How a run begins from the checkpoint of another. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Take(Enum):
    """Whether a part of a run is taken over from the checkpoint."""

    CONTINUED = "continued"
    FRESH = "fresh"


@dataclass(frozen=True)
class InitConfig:
    """What of the checkpoint is taken over, beside the weights and router biases.

    Everything continued is the same run from there on, bit for bit while nothing differs. Optimizer continued and the
    rest fresh is mid-training or annealing; all fresh takes the weights alone.
    """

    at_step: int | None = None
    """Step of the permanent checkpoint to begin from, null for the last one."""
    optimizer: Take = Take.CONTINUED
    """Its state, with the skip guard's and the loss scale's; fresh begins without any."""
    schedule: Take = Take.FRESH
    """Continued: steps go on counting, and with them the learning rate, up to `training.steps`. Fresh: the run has
    `training.steps` steps of its own.
    """
    data: Take = Take.FRESH
    """Continued: the first sequence is the one after the last that was read. Fresh: the mixture from its beginning."""
    may_differ: tuple[str, ...] = ()
    """Settings that may differ from those of the checkpoint's run, as patterns: `mixture`, `optimizer.*`,
    `batch_sequences`, `gradient_clip`, `model.window`, … Those of a fresh schedule and of a fresh optimizer need not be
    named.
    """
    name: str = ""
    """Tells runs apart that compute the same in another way, such as a trial of another parallel plan."""

    @property
    def allowed(self) -> tuple[str, ...]:
        """All patterns of settings that may differ."""
        schedule = ("schedule", "schedule.*", "batch_sequences", "batch_changes")
        fresh = (
            *(schedule if self.schedule is Take.FRESH else ()),
            *(("optimizer", "optimizer.*", "guard", "guard.*") if self.optimizer is Take.FRESH else ()),
            *(("seed",) if self.data is Take.FRESH else ()),
        )
        return (*self.may_differ, "init", "init.*", *fresh)
