"""How many sequences a step takes, where that changes in the course of a run. Free of heavy imports.

The stream of sequences stays the same; only where steps cut it changes.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class BatchChange:
    """From a step on, counted from 0, the global batch has this many sequences."""

    step: int
    sequences: int


class BatchSchedule:
    """The sequences of every step of a run, in closed form.

    Args:
        sequences: of the global batch from step 0 on.
        changes: with ascending steps.
    """

    def __init__(self, sequences: int, changes: tuple[BatchChange, ...]) -> None:
        self._steps = [0, *(change.step for change in changes)]
        self._sizes = [sequences, *(change.sequences for change in changes)]
        lengths = (after - before for before, after in itertools.pairwise(self._steps))
        products = (length * size for length, size in zip(lengths, self._sizes, strict=False))
        self._firsts = [0, *itertools.accumulate(products)]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Every size of the global batch, in order."""
        return tuple(self._sizes)

    def size(self, step: int) -> int:
        """Sequences of the step after ``step`` steps."""
        return self._sizes[bisect.bisect_right(self._steps, step) - 1]

    def first(self, step: int) -> int:
        """Sequences before it: the state of the data after ``step`` steps."""
        index = bisect.bisect_right(self._steps, step) - 1
        return self._firsts[index] + (step - self._steps[index]) * self._sizes[index]


def check_batch_changes(changes: tuple[BatchChange, ...], steps: int, name: str) -> None:
    """Refuse changes that cannot be meant.

    Raises:
        ValueError: naming the change.
    """
    before = 0
    for change in changes:
        if not before < change.step < steps:
            raise ValueError(
                f"{name} has a change at step {change.step}; steps ascend, from {before + 1} to {steps - 1} here"
            )
        if change.sequences < 1:
            raise ValueError(f"{name} has {change.sequences} sequences from step {change.step} on; give at least 1")
        before = change.step


def batch_ramp(first: int, last: int, increment: int, steps: int) -> tuple[BatchChange, ...]:
    """Changes that take the batch from ``first`` to ``last`` sequences in equal increments, spread over ``steps``.

    Raises:
        ValueError: the increments do not lead from one to the other, or are more than the steps.
    """
    rises, rest = divmod(last - first, increment) if increment > 0 else (0, 1)
    if rest or not 0 < rises <= steps:
        raise ValueError(
            f"a ramp from {first} to {last} sequences in increments of {increment} over {steps} steps: give an "
            "increment above 0 that divides the difference, and at least as many steps as increments"
        )
    return tuple(BatchChange((rise * steps) // rises, first + rise * increment) for rise in range(1, rises + 1))


def rank_requests(
    batches: BatchSchedule, first_step: int, steps: int, rank: int, ranks: int, largest: int | None
) -> Iterator[tuple[int, int]]:
    """(first sequence, number) of every micro-batch that a rank reads, from a step on.

    Each rank takes an equal part of every global batch, in micro-batches of at most ``largest`` sequences, or at once.
    """
    for step in range(first_step, steps):
        part = batches.size(step) // ranks
        begin = batches.first(step) + rank * part
        size = min(largest or part, part)
        for start in range(0, part, size):
            yield begin + start, min(size, part - start)
