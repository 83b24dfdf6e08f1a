"""The back end of a run, started when a step first needs it, and the one for inline steps, which is always there."""

from __future__ import annotations

import threading
from collections.abc import Callable

from marin.execution.failures import Cancelled
from marin.execution.running.inline import Backend, InlineBackend

LOOK_SECONDS = 0.2


class Backends:
    """Gives each step its back end. Steps ask from their threads; the main thread starts what they ask for."""

    def __init__(self, make: Callable[[], Backend], stopping: threading.Event, wake: Callable[[], None]) -> None:
        """`wake` tells the main thread that it should look at `start_if_wanted`."""
        self._make = make
        self._stopping = stopping
        self._wake = wake
        self._inline = InlineBackend()
        self._backend: Backend | None = None
        self._wanted = threading.Event()
        self._ready = threading.Event()

    def give(self, *, inline: bool) -> Backend:
        """The back end for a step; waits until it has started. Raises `Cancelled` when the run ends before."""
        if inline:
            return self._inline
        self._wanted.set()
        self._wake()
        while not self._ready.wait(LOOK_SECONDS):
            if self._stopping.is_set():
                raise Cancelled("the run is ending")
        if self._stopping.is_set() or self._backend is None:
            raise Cancelled("the run is ending")
        return self._backend

    def start_if_wanted(self) -> None:
        """Start what a step asked for, in this thread: what a back end starts may end with the thread that did.

        When it cannot start, that is no step's fault, and its error ends the whole run.
        """
        if self._backend is None and self._wanted.is_set():
            try:
                self._backend = self._make()
            except BaseException:
                self._stopping.set()
                raise
            self._ready.set()
        self.check()

    def check(self) -> None:
        """Raise `ClusterLost` when the machines are gone for good."""
        if self._backend is not None:
            self._backend.check()

    def stop(self, reason: str) -> None:
        """Give the ranks of gangs the time to save."""
        self._inline.stop(reason)
        if self._backend is not None:
            self._backend.stop(reason)

    def cancel(self) -> None:
        """End everything that runs."""
        self._inline.cancel()
        if self._backend is not None:
            self._backend.cancel()

    def close(self) -> None:
        """Let go of the machines."""
        if self._backend is not None:
            self._backend.close()
