"""What the work of a block logs, as text, also when other work of this process logs at the same time."""

from __future__ import annotations

import contextlib
import contextvars
import io
import logging
import threading
from collections.abc import Iterator

from marin.execution.redaction import redact

LOG_LIMIT = 4 << 20
"""Characters of one log."""

_owner: contextvars.ContextVar[io.StringIO | None] = contextvars.ContextVar("marin_log", default=None)


class _RedactingFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


class _InfoLevel:
    """Holds the root logger at INFO while any log is captured, and gives its own level back after the last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._level = logging.NOTSET

    def __enter__(self) -> None:
        root = logging.getLogger()
        with self._lock:
            if not self._holders:
                self._level = root.level
                if root.level > logging.INFO or root.level == logging.NOTSET:
                    root.setLevel(logging.INFO)
            self._holders += 1

    def __exit__(self, *details: object) -> None:
        with self._lock:
            self._holders -= 1
            if not self._holders:
                logging.getLogger().setLevel(self._level)


_at_info = _InfoLevel()


@contextlib.contextmanager
def captured_log() -> Iterator[io.StringIO]:
    """The log records of the block and of the threads that it starts, up to a limit, with secrets masked.

    A thread that captures a log of its own is left out; a record of a thread that nobody claims is in every open log.
    """
    stream = io.StringIO()

    def is_ours(record: logging.LogRecord) -> bool:
        return _owner.get() in (None, stream) and stream.tell() < LOG_LIMIT

    handler = logging.StreamHandler(stream)
    handler.setFormatter(_RedactingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(is_ours)
    root = logging.getLogger()
    token = _owner.set(stream)
    with _at_info:
        root.addHandler(handler)
        try:
            yield stream
        finally:
            root.removeHandler(handler)
            _owner.reset(token)
