"""The part of a stream from a place on, read as far as it was needed."""

from __future__ import annotations

from typing import Protocol

_CHUNK = 256 * 1024


class Readable(Protocol):
    """What a window needs of a stream."""

    def read(self, size: int, /) -> bytes: ...


class Window:
    """Bytes of a stream from ``offset`` on.

    Args:
        stream: stands at ``offset``.
        offset: place in the file of the first byte.
    """

    def __init__(self, stream: Readable, offset: int) -> None:
        self.offset = offset
        self.data = bytearray()
        self._stream = stream
        self._ended = False

    def fill(self, size: int) -> bool:
        """Read until ``size`` bytes are there; False at the end of the stream."""
        while len(self.data) < size and not self._ended:
            chunk = self._stream.read(_CHUNK)
            self.data += chunk
            self._ended = not chunk
        return len(self.data) >= size

    def skip(self, size: int) -> None:
        """Move the offset forward."""
        del self.data[:size]
        self.offset += size

    def copy(self, start: int, end: int) -> bytes:
        """Some of the bytes that are there."""
        with memoryview(self.data) as view:
            return bytes(view[start:end])
