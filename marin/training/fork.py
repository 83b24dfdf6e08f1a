"""Two or more runs over the same steps, side by side: a run and forks of it in which one thing was changed."""

from __future__ import annotations

from dataclasses import dataclass

from marin.checkpoint.artifacts import Checkpoint
from marin.execution import Artifact, current_run, step

COMPARISON = "comparison.json"
CURVES = "curves.svg"


@dataclass(frozen=True, kw_only=True)
class ForkSummary:
    """A fork against the run that it was forked from, over the steps that both have. Differences are fork − control.

    Attributes:
        steps: how many steps both have.
        same_batches: whether every one of them had the same number of real tokens and of sequences of each component.
        identical: whether every loss is equal, bit for bit.
        mean_difference: of the losses, in nats per token; over all steps, and over their last quarter.
        largest_difference: the largest absolute one.
        speed: tokens per second of the fork over those of the control, medians over the steps.
        skipped: steps that the fork skipped.
    """

    steps: int
    same_batches: bool
    identical: bool
    mean_difference: float
    last_difference: float
    largest_difference: float
    speed: float
    skipped: int


@dataclass(frozen=True, kw_only=True)
class ForkComparison(Artifact):
    """Forks against their control. Files: `comparison.json` (every step of both), `curves.svg`."""

    first: int
    last: int
    """The steps that all have."""
    forks: dict[str, ForkSummary]

    def present(self, places: dict[str, str]) -> str:
        """Lines for the console, one a fork."""
        lines = [f"steps {self.first} to {self.last}; differences are fork − control, in nats per token"]
        for name, fork in sorted(self.forks.items()):
            batches = "same batches" if fork.same_batches else "OTHER BATCHES"
            verdict = "identical" if fork.identical else f"mean {fork.mean_difference:+.5f}"
            lines.append(
                f"  {name:24} {verdict}, last quarter {fork.last_difference:+.5f}, "
                f"largest {fork.largest_difference:.5f}; {batches}; {fork.speed:.2f} times the speed; "
                f"{fork.skipped} steps skipped"
            )
        return "\n".join([*lines, *(f"{what}: {where}" for what, where in places.items())])


@step("model/compare_forks", version="1", inline=True)
def compare_forks(control: Checkpoint, forks: dict[str, Checkpoint]) -> ForkComparison:
    """The losses of forks beside those of their control, step by step.

    `control` is the run that was forked, finished or up to a later permanent checkpoint, or a fork without a change.
    Raises StepError when a fork has no step in common with it.
    """
    from marin.training.side_by_side import compared

    return compared(current_run(), control, forks)
