"""A stream over a file on a server, which is opened again where the connection broke."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from typing import BinaryIO, TypeVar

from marin.execution.running.unanswered import gave_no_answer
from marin.storage import StoreUnavailable
from marin.storage.patience import Patience

T = TypeVar("T")

logger = logging.getLogger(__name__)


class PatientStream:
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
        self._open_file = open_file
        self._name = name
        self._size = size
        self._patience = patience
        self._stream: BinaryIO | None = None
        self._position = 0
        self._asked(lambda stream: None)

    def __enter__(self) -> PatientStream:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def read(self, size: int = -1) -> bytes:
        """Read up to ``size`` bytes; none only at the end."""

        def read(stream: BinaryIO) -> bytes:
            data = stream.read(size)
            if not data and size != 0 and self._size is not None and self._position < self._size:
                raise ConnectionError(f"it ended after {self._position} of {self._size} bytes")
            return data

        data = self._asked(read)
        self._position += len(data)
        return data

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
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _asked(self, request: Callable[[BinaryIO], T]) -> T:
        """What a request to the stream returns, on a new stream after each trouble."""
        began = time.monotonic()
        attempt = 0
        while True:
            attempt += 1
            try:
                if self._stream is None:
                    stream = self._open_file()
                    if self._position:
                        stream.seek(self._position)
                    self._stream = stream
                return request(self._stream)
            except Exception as error:
                if not _may_pass(error):
                    raise
                with contextlib.suppress(Exception):
                    self.close()
                pause, spent = self._patience.pause(attempt), time.monotonic() - began
                text = f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
                if spent + pause > self._patience.budget_seconds:
                    raise StoreUnavailable(
                        f"{self._name} cannot be read on at byte {self._position} ({text}; asked {attempt} times in "
                        f"{spent:.0f} s); look at the network and at the server, and run the same command again later"
                    ) from error
            logger.warning("%s is opened again at byte %d: %s", self._name, self._position, text)
            time.sleep(pause)


def _may_pass(error: BaseException) -> bool:
    """Whether an error is a broken connection or a server in trouble, and not a missing file or a wrong password."""
    if gave_no_answer(error):
        return True
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, (ConnectionError, TimeoutError)):
            return True
        cause = cause.__cause__
    return False
