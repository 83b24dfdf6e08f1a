"""The permanent checkpoints of a run that may still be going on, as artifacts: to evaluate, or to fork from.

A step that took the run itself as its input would have to wait for the run's end. This one names the run by its
identity instead, and reads what lies in its state.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from marin.checkpoint.artifacts import Checkpoint
from marin.checkpoint.state_folder import FileSink, FoundFile
from marin.execution import Artifact, StateFile, StepError, Unmaterialised, current_run, layout, step
from marin.execution.planning.plan import planned_steps
from marin.storage import Store

if TYPE_CHECKING:
    from marin.checkpoint.completeness import FoundCheckpoint

RUN = "model/pretrain"


@step("model/permanent", version="1", inline=True)
def permanent_checkpoint(run: str, at_step: int) -> Checkpoint:
    """The permanent checkpoint of a run (the 64 digits of its identity) after `at_step` steps, and its metrics so far.

    Its files stay where they lie. Raises StepError when the run has no such checkpoint, saying which it has.
    """
    from marin.training.publishing import publish_permanent

    return publish_permanent(current_run(), run, at_step)


def checkpoint_of(run: Checkpoint, at_step: int) -> Checkpoint:
    """The permanent checkpoint of a run after `at_step` steps, for a graph that does not wait for the run's end."""
    return permanent_checkpoint(identity_of(run), at_step)


def identity_of(run: Artifact) -> str:
    """The identity of a step's result, made or not."""
    try:
        return run.identity
    except (StepError, Unmaterialised):
        (planned,) = planned_steps([run])[1]
        return planned.identity


def permanent_checkpoints(store: Store, run: str) -> list[FoundCheckpoint]:
    """The complete permanent checkpoints of a run, by step; of one step, the one of the newest epoch."""
    from marin.checkpoint.completeness import survey

    complete = survey(StateOfRun.of(store, run)).complete
    newest = {found.step: found for found in reversed(complete) if found.permanent}
    return [newest[number] for number in sorted(newest)]


@dataclass(frozen=True)
class StateOfRun:
    """The resumable state of a run as somebody else sees it: read, never written."""

    store: Store
    files: tuple[StateFile, ...]

    @classmethod
    def of(cls, store: Store, run: str) -> StateOfRun:
        """What lies there, of every epoch."""
        place = re.compile(rf"{RUN}/(?:[^/]+-)?{layout.short(run)}/state/(\d+)/(.+)")
        matches = ((place.fullmatch(info.key), info) for info in store.list(RUN))
        return cls(store, tuple(StateFile(m[2], int(m[1]), info.key, info.size) for m, info in matches if m))

    def find(self, pattern: str, /) -> Sequence[FoundFile]:
        """Files whose name matches, newest epoch first, then by name."""
        found = [file for file in self.files if fnmatch.fnmatchcase(file.name, pattern)]
        return sorted(found, key=lambda file: (-file.epoch, file.name))

    def key(self, name: str, /) -> str:
        """No file is one's own."""
        return f"{RUN}/nobody/{name}"

    def write(self, name: str, /) -> AbstractContextManager[FileSink]:
        """Refused."""
        raise StepError(f"the state of another run is not written to: {name}")

    def create(self, name: str, data: bytes, /) -> object:
        """Refused."""
        raise StepError(f"the state of another run is not written to: {name}")
