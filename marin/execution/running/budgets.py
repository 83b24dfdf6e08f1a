"""How often a gang is started again: a budget for each way of ending early, which a long life fills again."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from marin.execution.failures import FailureClass
from marin.execution.fleet import Restarts
from marin.execution.running.worker import Failure

PAUSE_SECONDS = 1.0
PAUSE_LIMIT = 60.0
UNREACHABLE = "Unreachable"
"""The error of a rank that cannot open a connection to rank 0."""
UNREACHABLE_STARTS = 5
"""Gangs in a row whose ranks did not reach each other; more would not either."""


@dataclass
class Budgets:
    """What is left of the budgets of one step's gangs."""

    limits: Restarts
    spent: Counter[str] = field(default_factory=Counter)

    def lived(self, seconds: float) -> None:
        """A gang came to its end after so long."""
        if seconds >= self.limits.refill_seconds:
            self.spent.clear()

    def limit_of(self, failure: Failure) -> int:
        """How many gangs may end so, within one filling."""
        if failure.error == UNREACHABLE:
            return min(UNREACHABLE_STARTS, self.limits.preemptions)
        if failure.kind is FailureClass.preempted:
            return self.limits.preemptions
        if failure.kind is FailureClass.stalled:
            return self.limits.stalls
        if failure.kind is FailureClass.error and not failure.expected:
            return self.limits.errors
        return 0

    def take(self, failure: Failure) -> bool:
        """Whether the gang may be started again after this failure; it is counted when it may."""
        name = _name(failure)
        if self.spent[name] >= self.limit_of(failure):
            return False
        self.spent[name] += 1
        return True

    def pause(self) -> float:
        """Seconds before the next start; they grow with the starts since the budgets were full."""
        return float(min(PAUSE_SECONDS * 2 ** min(max(0, sum(self.spent.values()) - 1), 16), PAUSE_LIMIT))

    def told(self, failure: Failure) -> str:
        """How much of a failure's budget is used."""
        return f"restart {self.spent[_name(failure)]} of {self.limit_of(failure)} after {_name(failure)}"

    def spent_failure(self, failure: Failure) -> Failure:
        """What is told when a budget above 0 is used up: trying the step again would be a budget of its own."""
        limit = self.limit_of(failure)
        if not limit:
            return failure
        message = (
            f"{failure.message}; that was the last of {limit} restarts after {_name(failure)} "
            f"(fleet.restarts) without a life of {self.limits.refill_seconds:g} s between them: look at the cause, and "
            "run the same command again to go on"
        )
        return Failure(FailureClass.error, "RestartsUsedUp", message, failure.trace, failure.node, True, failure.causes)


def _name(failure: Failure) -> str:
    return failure.error if failure.error == UNREACHABLE else failure.kind.value
