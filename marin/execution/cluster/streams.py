"""Work that streams messages out of a Ray task: its progress, then its end."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

Message = tuple[str, Any]


def messages_of(work: Callable[[Callable[[Message], None]], None]) -> Iterator[Message]:
    """Run `work(send)` in a thread and yield what it sends, until it ends.

    The worker's main thread stays free for Ray's order to exit, which would otherwise wait for the work's next pause.
    """
    messages: queue.SimpleQueue[Message | None] = queue.SimpleQueue()  # a signal handler may put

    def body() -> None:
        try:
            work(messages.put)
        finally:
            messages.put(None)

    thread = threading.Thread(target=body, name="marin-body", daemon=True)
    thread.start()
    while (message := messages.get()) is not None:
        yield message
