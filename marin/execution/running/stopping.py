"""A wish that the work of a process ends early, in good order: its machine is asked back, or the run is stopped."""

from __future__ import annotations

import threading


class StopRequest:
    """Set once, from any thread or signal handler; read by the work at its borders. The first reason stays."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reason: str | None = None

    def set(self, reason: str) -> None:
        """Ask the work to save what it has and to end; later requests change nothing."""
        if self._lock.acquire(blocking=False):  # never released: a handler that interrupts another must not wait
            self._reason = reason

    @property
    def reason(self) -> str | None:
        """Why the work is to end; None while nobody asked."""
        return self._reason
