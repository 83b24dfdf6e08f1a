"""A rank that waits, at a chosen moment of its run, for a signal from another process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from marin.execution import StopRequest
from marin.tokens.mixture.loader import Batch
from marin.training.hooks import Hook
from marin.training.loop import TrainingLoop
from tests.training.toy import Signalled

SECONDS = 30.0


class WaitsForSignal(Hook):
    """Waits at `where`, None for never; a hook with state, since a save asks for that."""

    name = "waits"

    def __init__(self, where: Signalled | None, stop: StopRequest) -> None:
        self.where = where
        self.stop = stop
        self.step = 0
        self.evaluations = 0

    def start(self, loop: TrainingLoop) -> None:
        self.step = loop.step

    def after_backward(self, step: int) -> None:
        self._wait_at("step", step - 1)

    def after_update(self, step: int) -> None:
        self.step = step

    def state(self) -> dict[str, Any]:
        self._wait_at("save", self.step)
        return {}

    def heldout(self, batches: Callable[[int, int], Iterator[Batch]], size: int, sequences: int) -> Iterator[Batch]:
        """The batches, with a wait before the second."""
        for index, batch in enumerate(batches(size, sequences)):
            if index == 1:
                self._wait_at("evaluation", self.step)
            yield batch

    def _wait_at(self, place: str, step: int) -> None:
        if self.where is None or (self.where.place, self.where.after) != (place, step) or self.stop.reason:
            return
        note = Path(self.where.note)
        note.with_suffix(".part").write_text(str(os.getpid()))
        note.with_suffix(".part").rename(note)
        deadline = time.monotonic() + SECONDS
        while self.stop.reason is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no signal came at {self.where}")
            time.sleep(0.01)
