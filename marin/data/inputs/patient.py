"""A stream over a file on a server, which is opened again where the connection broke."""

from __future__ import annotations

import contextlib
import io
import logging
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, TypeVar

from marin.execution.running.unanswered import gave_no_answer
from marin.storage import StoreUnavailable
from marin.storage.patience import Patience

T = TypeVar("T")

logger = logging.getLogger(__name__)

_PART = 1 << 20


class PatientStream(io.RawIOBase):
    """Reads a file on, from the byte that was reached, when its server fails, throttles or falls silent.

    Args:
        open_file: opens the file from its start, as a stream that can seek.
        name: the file's name for messages.
        size: size of the file, when known: an earlier end is a broken connection too.
        patience: how long a server in trouble is asked again.

    Raises:
        StoreUnavailable: the server was in trouble for longer than that; the step as a whole is then tried again later.
    """

    def __init__(
        self, open_file: Callable[[], BinaryIO], name: str, size: int | None, patience: Patience = Patience()
    ) -> None:
        super().__init__()
        self._open_file = open_file
        self.name = name
        self._size = size
        self._patience = patience
        self._stream: BinaryIO | None = None
        self._position = 0
        self._heard = False
        self._asked(lambda stream: None)

    def readable(self) -> bool:
        """Always."""
        return True

    def read(self, size: int | None = -1) -> bytes:
        """Read up to ``size`` bytes; none only at the end. All that is left when ``size`` is negative or None."""
        if size is None or size < 0:
            return b"".join(iter(lambda: self.read(_PART), b""))

        def read(stream: BinaryIO) -> bytes:
            data = stream.read(size)
            if not data and size != 0 and self._size is not None and self._position < self._size:
                raise ConnectionError(f"it ended after {self._position} of {self._size} bytes")
            return data

        data = self._asked(read)
        self._position += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer; the number of bytes."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place in the file."""
        self._position = self._asked(lambda stream: stream.seek(offset, whence))
        return self._position

    def tell(self) -> int:
        """Place in the file."""
        return self._position

    def seekable(self) -> bool:
        """Whether the file can be read from any place."""
        return self._asked(lambda stream: stream.seekable())

    def close(self) -> None:
        """Close the connection."""
        self._drop()
        super().close()

    def _drop(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _asked(self, request: Callable[[BinaryIO], T]) -> T:
        """What a request to the stream returns, on a new stream after each trouble."""

        def ask() -> T:
            try:
                if self._stream is None:
                    self._stream = self._open_file()
                    _go_to(self._stream, self._position)
                return request(self._stream)
            except Exception:
                with contextlib.suppress(Exception):
                    self._drop()
                raise

        def place() -> str:
            return f"{self.name} at byte {self._position}"

        answered = patiently(ask, place, self._patience, heard=self._heard)
        self._heard = True
        return answered


def _go_to(stream: BinaryIO, position: int) -> None:
    """Go to a place in a stream that stands at its start, by reading where it cannot seek."""
    if position and stream.seekable():
        stream.seek(position)
        return
    while position > 0:
        data = stream.read(min(position, _PART))
        if not data:
            raise ConnectionError(f"it ended {position} bytes before the place that was reached")
        position -= len(data)


def patiently(
    ask: Callable[[], T],
    what: Callable[[], str],
    patience: Patience = Patience(),
    *,
    heard: bool = False,
    may_pass: Callable[[BaseException], bool] | None = None,
) -> T:
    """What ``ask()`` returns; it is asked again while the server behind it is in trouble.

    Args:
        ask: a request to a server.
        what: names what is asked for, and the place that was reached.
        patience: for how long it is asked again.
        heard: whether the server has answered before. One that never did is probably no server at all: it is asked
            for a few seconds only, and its own error is raised.
        may_pass: tells errors after which it is asked again; None for broken connections and servers in trouble.

    Raises:
        StoreUnavailable: the trouble did not pass. Every other error is raised as it is.
    """
    began = time.monotonic()
    attempt = 0
    while True:
        attempt += 1
        try:
            return ask()
        except Exception as error:
            if not (may_pass or _may_pass)(error):
                raise
            pause, spent = patience.pause(attempt), time.monotonic() - began
            text = f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
            if not heard and _is_refused(error):
                if spent + pause > patience.silence_seconds:
                    raise
            elif spent + pause > patience.budget_seconds:
                raise StoreUnavailable(
                    f"{what()} cannot be read ({text}; asked {attempt} times in {spent:.0f} s); look at the network "
                    "and at the server, and run the same command again later"
                ) from error
        logger.warning("%s is asked for again: %s", what(), text)
        time.sleep(pause)


def _may_pass(error: BaseException) -> bool:
    """Whether an error is a broken connection or a server in trouble, and not a missing file or a wrong password."""
    return gave_no_answer(error) or any(isinstance(one, (ConnectionError, TimeoutError)) for one in _causes(error))


def _is_refused(error: BaseException) -> bool:
    """Whether no connection could be made at all."""
    return any(isinstance(one, (ConnectionRefusedError, socket.gaierror)) for one in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__
