"""Posts alerts to a URL from a thread: a receiver that is slow, broken or gone does nothing to training."""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
import urllib.request
from collections.abc import Mapping
from typing import Any

from marin.execution.redaction import redact

TIMEOUT_SECONDS = 10.0
TRIES = 4
PAUSE_SECONDS = 2.0
"""Before the second try; doubled before each further one."""
WAITING = 100
"""Messages that wait at most; further ones are dropped and logged."""
CLOSE_SECONDS = 15.0

logger = logging.getLogger(__name__)


class Webhook:
    """One JSON object a message, by POST. The URL is a secret: it is in no log and in no error."""

    def __init__(
        self, url: str, *, timeout: float = TIMEOUT_SECONDS, tries: int = TRIES, pause: float = PAUSE_SECONDS
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError("the webhook's URL does not begin with http:// or https://; look at the secret's value")
        self._url = url
        self._timeout = timeout
        self._tries = tries
        self._pause = pause
        self._queue: queue.Queue[dict[str, Any] | None] = queue.Queue(WAITING)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="marin-webhook", daemon=True)
        self._thread.start()

    def send(self, message: Mapping[str, Any]) -> None:
        """Queues a message; never waits."""
        try:
            self._queue.put_nowait(dict(message))
        except queue.Full:
            logger.warning("the webhook is behind by %d messages; one is dropped: %s", WAITING, message.get("alert"))

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Ends the thread; gives what is queued one more try each, for so many seconds at most."""
        self._closing.set()
        until = time.monotonic() + seconds
        try:
            self._queue.put(None, timeout=seconds)
        except queue.Full:
            logger.warning("the webhook took %.0f s for nothing; %d messages are dropped", seconds, self._queue.qsize())
            return
        self._thread.join(max(0.0, until - time.monotonic()))

    def _work(self) -> None:
        while (message := self._queue.get()) is not None:
            self._deliver(message)

    def _deliver(self, message: dict[str, Any]) -> None:
        pause = self._pause
        for left in reversed(range(self._tries)):
            try:
                self._post(message)
                return
            except Exception as error:  # whatever the network or the receiver does
                if not left or self._closing.is_set():
                    told = redact(str(error)).replace(self._url, "the webhook")
                    logger.warning(
                        "the alert %s could not be posted: %s: %s", message.get("alert"), type(error).__name__, told
                    )
                    return
            self._closing.wait(pause)
            pause *= 2

    def _post(self, message: dict[str, Any]) -> None:
        request = urllib.request.Request(
            self._url,
            data=json.dumps(message).encode(),
            headers={"Content-Type": "application/json"},
            method="POST",
        )
        with urllib.request.urlopen(request, timeout=self._timeout) as answer:
            answer.read(1)
