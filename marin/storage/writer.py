"""A binary writer that counts and hashes what passes through it."""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol


class Commit(Protocol):
    """What a back end does when the last byte is written, or when writing failed."""

    def finish(self) -> None:
        """Make the object appear."""

    def discard(self) -> None:
        """Leave nothing behind."""


class Sink(Protocol):
    """Where the bytes go."""

    def write(self, data: Any, /) -> Any:
        """Take bytes."""


class ChecksummedWriter(io.BufferedIOBase):
    """A writable stream; `size` (bytes) and `sha256` (hex) are set once it is closed.

    `before_write` is called before each write, and what it raises ends the writing: a place to look at a lease.
    As a context manager it publishes the object only when the block ends without an exception. A stream that is
    dropped without being closed publishes nothing.
    """

    def __init__(self, stream: Sink, commit: Commit) -> None:
        self._stream = stream
        self._commit = commit
        self._hash = hashlib.sha256()
        self._settled = False
        self.before_write: Callable[[], None] | None = None
        self.size = 0
        self.sha256 = ""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self._settled:
            raise ValueError("this writer of an object is closed")
        if self.before_write is not None:
            self.before_write()
        view = memoryview(data).cast("B") if not isinstance(data, bytes) else data
        self._stream.write(view)
        self._hash.update(view)
        self.size += len(view)
        return len(view)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """Buffered bytes are published on close only."""

    def close(self) -> None:
        """Publish the object."""
        if self._settled:
            return
        self._settled = True
        try:
            self._commit.finish()
        except BaseException:
            # What is in the way of finishing is likely in the way of cleaning up; it is the first that is to be told.
            with contextlib.suppress(Exception):
                self._commit.discard()
            raise
        finally:
            self.sha256 = self._hash.hexdigest()
            super().close()

    def abandon(self) -> None:
        """Drop what was written."""
        if not self._settled:
            self._settled = True
            self._commit.discard()
            super().close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def __del__(self) -> None:
        self.abandon()
