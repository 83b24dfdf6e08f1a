"""How fast a run is, against how fast its processors multiply matrices."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

CPU_SIDE = 384
CUDA_SIDE = 8192


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
    """Wall seconds of the phases of a step, by name."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the time of the block to the phase; on CUDA it waits for the device, so phases are true and not only
        queued.
        """
        started = time.perf_counter()
        try:
            yield
        finally:
            _finish(self._device)
            self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - started

    def take(self) -> dict[str, float]:
        """The phases since the last call."""
        taken, self._seconds = self._seconds, {}
        return taken


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
