"""A run as anyone sees it in the store, while it goes on or after it died: newest lines, checkpoints, evaluations."""

from __future__ import annotations

import fnmatch
import itertools
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from marin.checkpoint.completeness import FoundCheckpoint, survey
from marin.checkpoint.layout import PROGRESS
from marin.checkpoint.progress import Progress
from marin.checkpoint.state_folder import FileSink
from marin.storage import Store
from marin.training.metrics import MetricsLog, read_segments
from marin.training.watch.folders import LIVE, NUMERICS, STALLS
from marin.training.watch.live import read_live

STATE = re.compile(r"(?P<folder>.+/state)/(?P<epoch>\d{6})/(?P<name>.+)")


@dataclass(frozen=True)
class StateObject:
    """An object of resumable state."""

    name: str
    epoch: int
    key: str
    size: int


class PastState:
    """The resumable state of a step, of every epoch, to be read only."""

    def __init__(self, store: Store, folder: str, objects: tuple[StateObject, ...]) -> None:
        self.store = store
        self.folder = folder
        self._objects = objects

    def find(self, pattern: str = "*") -> list[StateObject]:
        """Objects whose name matches, newest epoch first, then by name."""
        found = [one for one in self._objects if fnmatch.fnmatchcase(one.name, pattern)]
        return sorted(found, key=lambda one: (-one.epoch, one.name))

    def key(self, name: str) -> str:
        """A key that no object has: nothing here is anyone's own."""
        return f"{self.folder}/-/{name}"

    def write(self, name: str) -> AbstractContextManager[FileSink]:
        """Refused."""
        raise PermissionError(f"{name}: the state of a run is looked at here, and not changed")

    def create(self, name: str, data: bytes) -> None:
        """Refused."""
        self.write(name)


def states_under(store: Store, folder: str) -> list[PastState]:
    """The states of all training runs below a folder of the prefix, that which spoke last at the end."""
    found: dict[str, list[StateObject]] = {}
    for info in store.list(folder.strip("/")):
        match = STATE.fullmatch(info.key)
        if match is not None:
            one = StateObject(match["name"], int(match["epoch"]), info.key, info.size)
            found.setdefault(match["folder"], []).append(one)
    states = [PastState(store, place, tuple(objects)) for place, objects in found.items()]
    trained = [state for state in states if state.find("metrics/*") or state.find(f"{LIVE}/*")]
    return sorted(trained, key=lambda state: max((one.name for one in state.find(f"{LIVE}/*")), default=""))


@dataclass(frozen=True)
class Observed:
    """What a run left so far.

    `lines` are its last ones: those that the newest checkpoint lists, then those that only a life's own file has.
    """

    state: PastState
    checkpoint: FoundCheckpoint | None
    progress: Progress | None
    lines: tuple[dict[str, Any], ...]
    validations: tuple[dict[str, Any], ...]
    """Evaluations up to the newest checkpoint."""
    stalls: tuple[str, ...]
    numerics: tuple[str, ...]

    def all_lines(self) -> Iterator[dict[str, Any]]:
        """Every line of the run, from step 1."""
        segments = self.progress.metrics if self.progress is not None else ()
        last = segments[-1].last if segments else 0
        return itertools.chain(read_segments(self.state.store, segments), read_live(self.state, after=last))


def observe(state: PastState, lines: int) -> Observed:
    """Looks at a run; at least its last `lines` lines, if there are so many."""
    complete = survey(state).complete
    checkpoint = complete[0] if complete else None
    progress = None
    if checkpoint is not None:
        progress = Progress.from_bytes(state.store.read(checkpoint.keys[PROGRESS]))
    segments = progress.metrics if progress is not None else ()
    last = segments[-1].last if segments else 0
    return Observed(
        state=state,
        checkpoint=checkpoint,
        progress=progress,
        lines=(*MetricsLog(state, segments).last_lines(lines), *read_live(state, after=last)),
        validations=progress.validations if progress is not None else (),
        stalls=tuple(one.key for one in state.find(f"{STALLS}/*.txt")),
        numerics=tuple(one.key for one in state.find(f"{NUMERICS}/*/findings.json")),
    )
