"""What is done beside a training run without being part of its step: watching, alerting, profiling, guarding.

A hook sees the same moments on every rank, in a fixed order, and never inside a collective that other ranks skip: so
it may take sums over the ranks itself, if it does so on all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from marin.execution import StepError

if TYPE_CHECKING:
    from marin.checkpoint.completeness import FoundCheckpoint
    from marin.training.job import TrainingJob
    from marin.training.loop import RunView, TrainingLoop
    from marin.training.process_group import RankContext


class Hook:
    """Does nothing; a subclass overrides the moments that it needs. Steps count from 1."""

    name: str = ""
    """Under which a checkpoint keeps `state()`; empty for a hook without state."""

    def start(self, loop: TrainingLoop) -> None:
        """After a restore, before the first step of this process."""

    def before_step(self, step: int) -> None:
        """Before the batch of `step` is read."""

    def after_backward(self, step: int) -> None:
        """The gradients of the whole global batch are there; no parameter has changed."""

    def after_update(self, step: int) -> None:
        """The step is made, or skipped; its gradients are gone."""

    def figures(self, step: int) -> Mapping[str, Any]:
        """Added to the step's line of the metrics; called on every rank, used on rank 0. Names must be its own."""
        return {}

    def saved(self, found: FoundCheckpoint) -> None:
        """A checkpoint is complete."""

    def save_failed(self, step: int, attempts: int, reason: str) -> None:
        """An attempt to save the state after `step` steps failed; training goes on, and it will be tried again."""

    def validated(self, summary: Mapping[str, Any]) -> None:
        """A validation is done; `summary` is its entry in `validation.json`."""

    def failed(self, error: BaseException) -> None:
        """The run ends on this rank with `error`. Other ranks may not get here: no collective."""

    def close(self) -> None:
        """Always called, once, at the end of this process's part. Other ranks may not get here: no collective."""

    def state(self) -> dict[str, Any]:
        """What a resumed run must know, as JSON; equal on every rank."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Takes up the state of a checkpoint; called before `start`."""


class Hooks:
    """All hooks of a run, called in the order in which they were given."""

    def __init__(self, hooks: Iterable[Hook] = ()) -> None:
        self.all: Sequence[Hook] = tuple(hooks)
        names = [hook.name for hook in self.all if hook.name]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise ValueError(f"two hooks keep their state under the name {doubled[0]!r}; give each its own")

    def start(self, loop: TrainingLoop) -> None:
        for hook in self.all:
            hook.start(loop)

    def before_step(self, step: int) -> None:
        for hook in self.all:
            hook.before_step(step)

    def after_backward(self, step: int) -> None:
        for hook in self.all:
            hook.after_backward(step)

    def after_update(self, step: int) -> None:
        for hook in self.all:
            hook.after_update(step)

    def figures(self, step: int) -> dict[str, Any]:
        """The figures of all hooks together; raises StepError when two give the same name."""
        joined: dict[str, Any] = {}
        for hook in self.all:
            own = hook.figures(step)
            if doubled := joined.keys() & own.keys():
                raise StepError(
                    f"{type(hook).__name__} gives the figure {min(doubled)!r}, which another hook gives too"
                )
            joined |= own
        return joined

    def saved(self, found: FoundCheckpoint) -> None:
        for hook in self.all:
            hook.saved(found)

    def save_failed(self, step: int, attempts: int, reason: str) -> None:
        for hook in self.all:
            hook.save_failed(step, attempts, reason)

    def validated(self, summary: Mapping[str, Any]) -> None:
        for hook in self.all:
            hook.validated(summary)

    def failed(self, error: BaseException) -> None:
        """Tells every hook, also when one of them fails itself."""
        with ExitStack() as stack:
            for hook in reversed(self.all):
                stack.callback(hook.failed, error)

    def close(self) -> None:
        """Closes every hook, also when one of them fails."""
        with ExitStack() as stack:
            for hook in reversed(self.all):
                stack.callback(hook.close)

    def states(self) -> dict[str, dict[str, Any]]:
        """The state of every hook that has a name, by name."""
        return {hook.name: hook.state() for hook in self.all if hook.name}

    def restore(self, states: Mapping[str, dict[str, Any]]) -> None:
        """Gives every named hook its state; a hook that the checkpoint does not know starts afresh."""
        for hook in self.all:
            if hook.name in states:
                hook.restore(states[hook.name])


def build_hooks(job: TrainingJob, ranks: RankContext, run: RunView) -> list[Hook]:
    """The hooks of a run, in the order in which they are called."""
    from marin.training.watch.build import watch_hooks

    return watch_hooks(job.training, ranks, run, f"model/pretrain on {job.mixture.identity[:10]}")
