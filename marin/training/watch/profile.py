"""Records a window of steps operator by operator on rank 0: a trace, a summary and a page, beside the run's state."""

from __future__ import annotations

import gzip
import logging
import statistics
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.profiler import ProfilerActivity, profile

from marin.checkpoint.state_folder import StateFolder
from marin.training.hooks import Hook
from marin.training.throughput import PHASE
from marin.training.watch.config import ProfileWindow
from marin.training.watch.folders import PROFILES
from marin.training.watch.profile_summary import Operator, ProfileSummary, page

if TYPE_CHECKING:
    from marin.training.loop import TrainingLoop

SECONDS = 1e-6
"""torch counts in microseconds."""

logger = logging.getLogger(__name__)


class Profile(Hook):
    """Only rank 0 has one. After a restart inside the window nothing is profiled: its steps would not be comparable."""

    def __init__(self, window: ProfileWindow, state: StateFolder) -> None:
        self.name = ""
        self._window = window
        self._state = state
        self._loop: TrainingLoop | None = None
        self._profiler: profile | None = None
        self._operators: tuple[Operator, ...] = ()
        self._lines: list[Mapping[str, Any]] = []

    @property
    def _steps(self) -> range:
        return range(self._window.start, self._window.start + self._window.steps)

    @property
    def folder(self) -> str:
        """Where the three files go, in the state."""
        return f"{PROFILES}/step-{self._window.start:08d}"

    def start(self, loop: TrainingLoop) -> None:
        self._loop = loop
        loop.metrics.listen(self._line)

    def before_step(self, step: int) -> None:
        assert self._loop is not None
        if step == self._window.start:
            activities = [ProfilerActivity.CPU]
            if self._loop.ranks.device.type == "cuda":
                activities.append(ProfilerActivity.CUDA)
            self._profiler = profile(activities=activities)
            self._profiler.start()
            self._loop.clock.annotate = True

    def after_update(self, step: int) -> None:
        if self._profiler is None or step != self._steps[-1]:
            return
        profiler, self._profiler = self._profiler, None
        assert self._loop is not None
        self._loop.clock.annotate = False
        profiler.stop()
        self._operators = operators(profiler.key_averages(), self._window.steps)
        self._write("trace.json.gz", _trace(profiler))

    def close(self) -> None:
        if self._profiler is not None:
            self._profiler.stop()
            self._profiler = None

    def _line(self, line: Mapping[str, Any]) -> None:
        """The lines of the window may come a step late; with the last of them the summary is complete."""
        if line["step"] in self._steps:
            self._lines.append(line)
        if self._operators and line["step"] == self._steps[-1]:
            assert self._loop is not None
            made = summary(self._lines, self._operators, self._loop)
            self._write("summary.json", made.to_bytes())
            self._write("summary.md", page(made).encode())
            logger.info("the profile of steps %s is in %s", list(self._steps), self._state.key(self.folder))

    def _write(self, name: str, data: bytes) -> None:
        """A store that refuses costs the profile, and not the run."""
        try:
            with self._state.write(f"{self.folder}/{name}") as sink:
                sink.write(data)
        except Exception as error:  # whatever a store client raises
            logger.warning("the profile's %s cannot be written: %s: %s", name, type(error).__name__, error)


def operators(averages: Iterable[Any], steps: int) -> tuple[Operator, ...]:
    """Own time of every operator and kernel, longest first; ranges of phases are none."""
    found = []
    for one in averages:
        if one.key.startswith((PHASE, "ProfilerStep")):
            continue
        device = getattr(one, "self_device_time_total", 0)
        if one.self_cpu_time_total:
            found.append(Operator(one.key, "cpu", one.count / steps, one.self_cpu_time_total * SECONDS / steps))
        if device:
            found.append(Operator(one.key, "cuda", one.count / steps, device * SECONDS / steps))
    return tuple(sorted(found, key=lambda one: -one.seconds))


def summary(lines: Sequence[Mapping[str, Any]], found: tuple[Operator, ...], loop: TrainingLoop) -> ProfileSummary:
    """The lines and operators of a window as one summary."""
    seconds = statistics.median(line["seconds"]["step"] for line in lines)
    names = Counter(name for line in lines for name in line["seconds"] if name != "step")
    phases = {name: statistics.median(line["seconds"].get(name, 0.0) for line in lines) for name in names}
    tokens = statistics.mean(line["tokens"] for line in lines)
    return ProfileSummary(
        first_step=lines[0]["step"],
        steps=len(lines),
        device=_device_name(loop.ranks.device),
        ranks=loop.ranks.world_size,
        seconds=seconds,
        tokens=tokens,
        flops=tokens / seconds * loop.speed.flops_per_token,
        peak_flops=loop.speed.peak_flops,
        phases=phases,
        memory=lines[-1].get("memory", {}),
        operators=found,
    )


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu, {torch.get_num_threads()} threads"


def _trace(profiler: profile) -> bytes:
    """The trace for chrome://tracing or Perfetto, gzipped."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return gzip.compress(path.read_bytes(), compresslevel=6)
