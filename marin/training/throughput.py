"""How fast a run is, against how fast its processors multiply matrices."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch

CPU_SIDE = 384
CUDA_SIDE = 8192
PHASE = "phase/"
"""How the ranges of phases begin in a profile."""


def matmul_peak(device: torch.device, dtype: torch.dtype, seconds: float = 0.1) -> float:
    """Measured FLOP/s of square matrix products of `dtype` on `device` with the threads that this process has: its
    best round.
    """
    side = CUDA_SIDE if device.type == "cuda" else CPU_SIDE
    left = torch.ones(side, side, device=device, dtype=dtype)
    right = torch.ones(side, side, device=device, dtype=dtype)
    torch.mm(left, right)
    best, until = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < until:
        _finish(device)
        started = time.perf_counter()
        torch.mm(left, right)
        _finish(device)
        best = min(best, time.perf_counter() - started)
    return 2 * side**3 / best


def peak_memory_bytes(device: torch.device) -> int:
    """Largest memory that this process has used: of the device on CUDA, resident on the CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class PhaseClock:
    """Wall seconds of the phases of a step, by name; and where the process is, for who watches it from a thread."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._seconds: dict[str, float] = {}
        self._queued: dict[str, list[Events]] = {}
        self.current: str | None = None
        """The phase that the process is in."""
        self.changes = 0
        """How often a phase began, ended or went on: while it stays the same, nothing happens."""
        self.annotate = False
        """Whether phases show as ranges in a profile."""

    @contextmanager
    def phase(self, name: str, *, on_device: bool = False) -> Iterator[None]:
        """Adds the time of the block to the phase.

        The work of a block `on_device` is only queued by CUDA when the block ends: the device itself takes its time
        then, and nothing waits for that.
        """
        started, around = time.perf_counter(), self.current
        events = self._begin() if on_device and self._device.type == "cuda" else None
        self.current = name
        self.changes += 1
        try:
            with torch.profiler.record_function(PHASE + name) if self.annotate else nullcontext():
                yield
        finally:
            if events is not None:
                events[1].record()
                self._queued.setdefault(name, []).append(events)
            else:
                self.add(name, time.perf_counter() - started)
            self.current = around
            self.changes += 1

    def tick(self) -> None:
        """Says that something goes on within a long phase."""
        self.changes += 1

    def add(self, name: str, seconds: float) -> None:
        """Adds time to a phase that was measured elsewhere; such a phase may lie within others."""
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    def take(self) -> dict[str, float | DeviceSeconds]:
        """The phases since the last call; those of the device are to be read when they are over."""
        queued = {name: DeviceSeconds(tuple(events)) for name, events in self._queued.items()}
        taken: dict[str, float | DeviceSeconds] = {**self._seconds, **queued}
        self._seconds, self._queued = {}, {}
        return taken

    def _begin(self) -> Events:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]  # torch's
        begin.record()
        return begin, end


Events = tuple[torch.cuda.Event, torch.cuda.Event]
"""Begin and end of a stretch of the device's work."""


@dataclass(frozen=True)
class DeviceSeconds:
    """Time of stretches of the device's work, which may still be going on."""

    events: tuple[Events, ...]

    def item(self) -> float:
        """The seconds; waits for the end."""
        for _, end in self.events:
            end.synchronize()
        return float(sum(begin.elapsed_time(end) for begin, end in self.events)) / 1e3


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
