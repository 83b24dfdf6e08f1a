"""How a run and its steps stand, and who is told of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, Protocol

from marin.execution.planning.plan import PlannedStep
from marin.execution.running.worker import Failure


class Status(enum.Enum):
    """How a step of a run ended, or how far it is."""

    pending = "pending"
    waiting = "waiting for another run"
    running = "running"
    done = "done"
    cached = "cached"
    failed = "failed"
    blocked = "blocked"
    cancelled = "cancelled"


BROKEN = (Status.failed, Status.blocked, Status.cancelled)
"""How a step can end without a record."""


@dataclass(eq=False)
class Progress:
    """One step as a run sees it."""

    step: PlannedStep
    status: Status = Status.pending
    started: float = 0.0
    seconds: float = 0.0
    failure: Failure | None = None
    blocked_by: str = ""
    poll_at: float = 0.0
    attempts: int = 0
    latest: dict[str, Any] = field(default_factory=dict)


class Observer(Protocol):
    """Who watches a run, such as the console."""

    def changed(self, progress: Progress, text: str = "") -> None:
        """A step's status changed."""

    def advanced(self, progress: Progress) -> None:
        """A step reported progress."""


class Silent:
    """Watches nothing."""

    def changed(self, progress: Progress, text: str = "") -> None:
        """Ignore."""

    def advanced(self, progress: Progress) -> None:
        """Ignore."""


@dataclass
class RunResult:
    """What a run came to."""

    run: str
    steps: list[Progress]
    interrupted: bool = False

    @property
    def failures(self) -> list[Progress]:
        """Steps that failed, or were cancelled although the run was not interrupted."""
        ends = (Status.failed,) if self.interrupted else (Status.failed, Status.cancelled)
        return [progress for progress in self.steps if progress.status in ends]

    @property
    def succeeded(self) -> bool:
        """Whether everything that was asked for is there."""
        return not self.interrupted and all(p.status in (Status.done, Status.cached) for p in self.steps)
