"""Notices that a cluster's head is gone, before Ray ends this process without a word of what to do.

Ray 2.60 blocks every call while the head is silent, and aborts the process after 60 s. The watch asks with a plain
connection every few seconds, and says that the cluster is lost when none was taken for a while.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

LOOK_SECONDS = 2.0
CONNECT_SECONDS = 3.0
LOST_SECONDS = 15.0
"""Of silence, after which a head does not come back: Ray without a database of its own cannot go on with another."""


@dataclass(frozen=True)
class Endpoint:
    """Something that must listen as long as the cluster can be used."""

    what: str
    host: str
    port: int

    def answers(self) -> bool:
        """Whether a connection is taken."""
        try:
            with socket.create_connection((self.host, self.port), timeout=CONNECT_SECONDS):
                return True
        except OSError:
            return False


class HeadWatch:
    """Looks at a cluster's endpoints from a thread of its own; calls `lost(message)` once when one stays silent."""

    def __init__(self, endpoints: Sequence[Endpoint], lost: Callable[[str], None]) -> None:
        self._endpoints = endpoints
        self._lost = lost
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="marin-head-watch", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()

    def _run(self) -> None:
        answered = dict.fromkeys(self._endpoints, time.monotonic())
        while not self._stop.wait(LOOK_SECONDS):
            for endpoint in self._endpoints:
                if endpoint.answers():
                    answered[endpoint] = time.monotonic()
                    continue
                silent = time.monotonic() - answered[endpoint]
                if silent > LOST_SECONDS and not self._stop.is_set():
                    self._lost(f"{endpoint.what} at {endpoint.host}:{endpoint.port} is silent since {silent:.0f} s")
                    return
