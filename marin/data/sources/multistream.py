"""Large dumps in many bzip2 streams, such as Wikipedia's ``…-pages-articles-multistream.xml.bz2``, read in parts.

Each stream of such a dump holds whole pages and can be unpacked alone, so a part may begin with any of them. The list
of places that lies beside the dump is not needed: a stream begins with a mark of ten bytes, and must begin with a page.
"""

from __future__ import annotations

import bz2
import io
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

_STREAM = re.compile(rb"BZh[1-9]1AY&SY")
_MARK = 10
_PAGE = b"<page>"
_BLOCK = 2 << 20
"""A block of bzip2 holds up to 900 kB, and nothing of it comes out before its end."""
_FARTHEST = 32 << 20
"""Bytes behind a place in which a stream is looked for: those of Wikipedia have one every few hundred kilobytes."""
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Part:
    """Some bytes of a file, from one on, and up to another where that is not the end of the file."""

    begin: int = 0
    end: int | None = None

    @property
    def is_first(self) -> bool:
        """Whether the file's own beginning is in it."""
        return self.begin == 0

    @property
    def is_last(self) -> bool:
        """Whether the file's own end is in it."""
        return self.end is None


WHOLE = Part()


def parts_of(stream: io.RawIOBase, size: int, part_bytes: int) -> list[Part]:
    """Parts of about equal size that together are the file; one where there are no streams with whole pages.

    Args:
        stream: the file as it lies there.
        size: its size.
        part_bytes: bytes of a part.
    """
    parts = -(-size // part_bytes)
    if parts < 2 or not stream.seekable() or not _STREAM.match(_read(stream, 0, _MARK)):
        return [WHOLE]
    begins = [0]
    for part in range(1, parts):
        found = _next_stream(stream, max(size * part // parts, begins[-1] + 1))
        if found < 0:
            break
        begins.append(found)
    return [Part(begin, end) for begin, end in pairwise([*begins, None]) if begin is not None]


def _next_stream(stream: io.RawIOBase, offset: int) -> int:
    """Place of the first stream from ``offset`` on that begins with a page, or -1."""
    looked = offset
    while looked < offset + _FARTHEST:
        data = _read(stream, looked, _CHUNK + _MARK)
        for mark in _STREAM.finditer(data):
            if _begins_a_page(_read(stream, looked + mark.start(), _BLOCK)):
                return looked + mark.start()
        if len(data) <= _CHUNK:
            return -1
        looked += _CHUNK
    return -1


def _begins_a_page(data: bytes) -> bool:
    try:
        return bz2.BZ2Decompressor().decompress(data, 256).lstrip().startswith(_PAGE)
    except OSError:
        return False


def _read(stream: io.RawIOBase, offset: int, size: int) -> bytes:
    stream.seek(offset)
    parts: list[bytes] = []
    while size and (data := stream.read(size)):
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


class PartStream(io.RawIOBase):
    """The bytes of one part of a file."""

    def __init__(self, stream: io.RawIOBase, part: Part) -> None:
        super().__init__()
        self._stream = stream
        self._left = None if part.end is None else part.end - part.begin
        stream.seek(part.begin)

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read as `io.RawIOBase` says."""
        wanted = len(buffer) if self._left is None else min(len(buffer), self._left)
        data = self._stream.read(wanted) or b""
        buffer[: len(data)] = data
        if self._left is not None:
            self._left -= len(data)
        return len(data)

    def close(self) -> None:
        """Close the file too."""
        if not self.closed:
            self._stream.close()
        super().close()
