"""The two threads that stand beside a run: one shows that it lives, the other looks whether its claims still hold."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from marin.execution.failures import LeaseLost
from marin.execution.running.claims import Claim, Claims, check_lease
from marin.execution.running.inline import Backend
from marin.storage import Store

LEASE_SECONDS = 5.0
"""Between two looks at a claim. A claim that is held for less is looked at by its commit alone."""

logger = logging.getLogger(__name__)


class Heartbeat:
    """Writes the run's heartbeat from a thread of its own, so that a busy driver is not taken for dead."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="marin-heartbeat", daemon=True)

    def start(self) -> None:
        """Show at once that the run lives, then go on."""
        self._claims.beat()
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and say that the run is over."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)
        self._beat(last=True)

    def _run(self) -> None:
        while not self._stop.wait(self._claims.period):
            self._beat()

    def _beat(self, *, last: bool = False) -> None:
        try:
            self._claims.beat(last=last)
        except Exception as error:  # clients have errors of their own
            logger.warning("the heartbeat could not be written: %s", error)


class LeaseWatch:
    """Looks every few seconds at the claims under which steps run, and ends the work under one that is lost.

    A worker looks itself when it writes, but one that computes for an hour before it writes would burn that hour.
    """

    def __init__(self, store: Store, lose: Callable[[Claim, Backend], None]) -> None:
        self._store = store
        self._lose = lose
        self._lock = threading.Lock()
        self._watched: dict[Claim, Backend] = {}
        self._lost: dict[Claim, LeaseLost] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="marin-leases", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def add(self, claim: Claim, backend: Backend) -> None:
        """Watch a claim under which work begins."""
        with self._lock:
            self._watched[claim] = backend

    def remove(self, claim: Claim) -> LeaseLost | None:
        """Watch it no longer; returns how it was lost, if it was."""
        with self._lock:
            self._watched.pop(claim, None)
            return self._lost.pop(claim, None)

    def _run(self) -> None:
        while not self._stop.wait(LEASE_SECONDS):
            with self._lock:
                watched = list(self._watched.items())
            for claim, backend in watched:
                try:
                    check_lease(self._store, claim)
                except LeaseLost as error:
                    self._end(claim, backend, error)
                except Exception as error:  # clients have errors of their own
                    logger.warning("the claim on %s could not be looked at: %s", claim.name, error)

    def _end(self, claim: Claim, backend: Backend, error: LeaseLost) -> None:
        with self._lock:
            if claim not in self._watched or claim in self._lost:
                return
            self._lost[claim] = error
        self._lose(claim, backend)
