"""The metrics of the running segment in the store, for people, seconds after they were made.

They are no truth: a resumed run goes on from the segments that its checkpoint lists, and what lies here beyond them is
what an ended life also did, for a post-mortem. One object for each life of the process, overwritten as it grows.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from marin.checkpoint.state_folder import StateFolder
from marin.execution import LeaseLost
from marin.training.hooks import Hook
from marin.training.watch.folders import LIVE

if TYPE_CHECKING:
    from marin.training.loop import TrainingLoop

CLOSE_SECONDS = 10.0
"""How long the end of a run waits for the last lines to reach the store."""

logger = logging.getLogger(__name__)


class LiveLines(Hook):
    """Writes the open lines now and then, in a thread: neither a slow store nor a broken one holds the run up."""

    def __init__(self, state: StateFolder, life: str, seconds: float) -> None:
        self.name = ""
        self.flushed_at = time.time()
        """When the store last took lines; what an outside observer sees as the newest sign of life."""
        self._state = state
        self._object = f"{LIVE}/{life}.jsonl"
        self._seconds = seconds
        self._lines: dict[int, str] = {}
        self._changed = False
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="marin-live-metrics", daemon=True)
        self._saved_up_to = 0
        self._complained = False

    def start(self, loop: TrainingLoop) -> None:
        loop.metrics.listen(self.add)
        self._thread.start()

    def add(self, line: dict[str, Any]) -> None:
        """Takes a line; the thread that trains only hands it over."""
        with self._lock:
            self._lines[int(line["step"])] = json.dumps(line, allow_nan=False)
            self._changed = True

    def saved(self, found: Any) -> None:
        """Lines that a complete checkpoint lists need no second place, but stay until then."""
        with self._lock:
            self._saved_up_to = found.step

    def close(self) -> None:
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)

    def flush(self) -> None:
        """Puts what is open into the store now; a store that refuses is logged once."""
        with self._lock:
            if not self._changed:
                return
            self._lines = {step: line for step, line in self._lines.items() if step > self._saved_up_to}
            text = "".join(f"{line}\n" for line in self._lines.values())
            self._changed = False
        try:
            with self._state.write(self._object) as sink:
                sink.write(text.encode())
            self.flushed_at, self._complained = time.time(), False
        except LeaseLost:
            self._ending.set()
        except Exception as error:  # whatever a store client raises: training goes on
            with self._lock:
                self._changed = True
            if not self._complained:
                logger.warning("the live metrics cannot be written, training goes on: %s", error)
            self._complained = True

    def _work(self) -> None:
        while not self._ending.wait(self._seconds):
            self.flush()
        self.flush()


def read_live(state: StateFolder, after: int = 0) -> Iterator[dict[str, Any]]:
    """The lines of steps beyond `after` that the newest life left outside its segments, in order."""
    files: Sequence[Any] = state.find(f"{LIVE}/*.jsonl")
    if not files:
        return
    newest = max(files, key=lambda file: (file.epoch, file.name))
    for text in state.store.read(newest.key).decode().splitlines():
        line = json.loads(text)
        if line["step"] > after:
            yield line
