"""How fast a run is, against how fast its processors multiply matrices."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

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
        self.current: str | None = None
        """The phase that the process is in."""
        self.changes = 0
        """How often a phase began or ended: while it stays the same, nothing goes on."""
        self.annotate = False
        """Whether phases show as ranges in a profile."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the time of the block to the phase; on CUDA it waits for the device, so phases are true and not only
        queued.
        """
        started, around = time.perf_counter(), self.current
        self.current = name
        self.changes += 1
        try:
            with torch.profiler.record_function(PHASE + name) if self.annotate else nullcontext():
                yield
        finally:
            _finish(self._device)
            self.add(name, time.perf_counter() - started)
            self.current = around
            self.changes += 1

    def add(self, name: str, seconds: float) -> None:
        """Adds time to a phase that was measured elsewhere; such a phase may lie within others."""
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    def take(self) -> dict[str, float]:
        """The phases since the last call."""
        taken, self._seconds = self._seconds, {}
        return taken


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
