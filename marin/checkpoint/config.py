"""When and how a run saves itself. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from marin.execution.fields import refuse_infinite


class Part(StrEnum):
    """How much of a checkpoint a run begins with."""

    WEIGHTS = "weights"
    """The model with its router biases; the optimizer starts afresh."""
    WEIGHTS_AND_FITTING_OPTIMIZER = "weights and fitting optimizer"
    """The model, and the optimizer's state of every parameter for which both optimizers keep the same; the rest starts
    afresh. For a change of the optimizer.
    """
    ALL = "all"
    """The model and the whole state of the optimizer."""


@dataclass(frozen=True)
class CheckpointPolicy:
    """How the state is saved while a run goes on, in two sets: rolling checkpoints, of which the newest few stay, and
    permanent ones, which stay for ever and are published with the run's result. The last step is always saved, and so
    is every step before an evaluation.
    """

    every_steps: int | None = 100
    """Steps from one rolling checkpoint to the next, null for none by steps."""
    every_minutes: float | None = None
    """Minutes from one rolling checkpoint to the next by the clock of rank 0, null for none by time. One that comes due
    while another is being written is left out.
    """
    permanent_every_steps: int | None = None
    """Steps from one permanent checkpoint to the next, the points from which a run can be forked; null for none."""
    keep_last: int = 2
    """Complete rolling checkpoints of this run that stay; older ones are removed."""
    verify_digests: bool = True
    """Read every file once before a restore and compare its sha256."""
    asynchronous: bool = True
    """Write in the background, from a copy in host memory, while the run trains on."""
    rehearse: bool = True
    """Prove before the first step that what is saved can be restored, and read the first checkpoint back. It costs a
    save and a restore once a run.
    """
    retry_seconds: float = 15.0
    """Pause before a save that failed is tried again; doubled with each failure, up to five minutes."""
    give_up_minutes: float | None = 120.0
    """The run ends when saves have failed for so long without one success; null to train on whatever the store does."""

    def __post_init__(self) -> None:
        refuse_infinite(self, "checkpoints.")
        for name in ("every_steps", "every_minutes", "permanent_every_steps", "give_up_minutes"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"checkpoints.{name} is {value}; give a positive number, or null")
        if self.retry_seconds <= 0:
            raise ValueError(f"checkpoints.retry_seconds is {self.retry_seconds}; give a positive number of seconds")
        if self.keep_last < 2:
            raise ValueError(
                f"checkpoints.keep_last is {self.keep_last}; at least 2 must stay: a holder that was taken for dead "
                "may still remove one, and its successor may be loading that very one"
            )
