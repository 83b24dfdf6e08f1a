"""What can end a step, by class; the class decides whether it is tried again."""

from __future__ import annotations

import enum


class StepError(Exception):
    """A failure whose message is meant for people: bad input, missing file, evidence that does not add up."""


class LeaseLost(Exception):
    """Another run holds a newer claim on this step; whatever this worker does from here on is litter."""


class Preempted(Exception):
    """This work was asked to end early; what it has done is in its state, from which it goes on when started again."""


class Stalled(Exception):
    """This work hangs, as whoever watches it found; it is ended from outside and tried again from its state."""


class ClusterLost(StepError):
    """The machines on which steps run are gone for good; the message says how to go on."""


class Cancelled(Exception):
    """The run is ending."""


class FailureClass(enum.Enum):
    """Why a step ended without a result.

    `preempted`: a worker or node went away or was asked back, or the store throttled: tried again, with a pause, up to
    the run's budget. `memory`: killed for memory: tried once more. `error`: the step's own code: not tried again.
    `stalled`: a rank made no progress for too long: its gang is tried again, within a budget of its own.
    `cancelled`: the run was stopped. `lease`: another run took the step over.
    """

    preempted = "preempted"
    memory = "memory"
    error = "error"
    stalled = "stalled"
    cancelled = "cancelled"
    lease = "lease"


RETRY_BUDGET = {FailureClass.preempted: 20, FailureClass.memory: 1}
