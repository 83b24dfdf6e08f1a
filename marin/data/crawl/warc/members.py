"""A walk over the members of a gzip file that survives damage: each record of a WARC is one member."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import BinaryIO

_MAGIC = b"\x1f\x8b\x08"
_CHUNK = 256 * 1024
_GZIP = 31
_PROBE = 64
_STEP = 64


class MemberState(Enum):
    """How a member came out."""

    WHOLE = "whole"
    DAMAGED = "damaged"
    TRUNCATED = "truncated"


@dataclass(frozen=True, slots=True)
class Member:
    """One member: where it starts, where the next one may start, and its content as far as it could be inflated."""

    offset: int
    end: int
    state: MemberState
    data: bytes


def walk_members(stream: BinaryIO, offset: int, *, max_bytes: int) -> Iterator[Member]:
    """The members of a gzip stream that stands at ``offset``, to its end.

    A damaged stretch, of one or more members, is given as one damaged member, and the walk goes on at the next place
    that inflates to ``WARC/``. A last member without an end is truncated. Memory: one member.

    Args:
        stream: binary stream that stands at ``offset``.
        offset: position in the file, for the members' offsets.
        max_bytes: a member that inflates to more is given as damaged.
    """
    window = _Window(stream, offset)
    while window.fill(1):
        member = _inflate(window, max_bytes)
        if member.state is MemberState.WHOLE:
            yield member
            window.skip(member.end - member.offset)
            continue
        start = window.offset
        window.skip(1)
        resumed = _resync(window)
        state = MemberState.DAMAGED if resumed else member.state
        yield Member(start, window.offset, state, member.data)


def next_member(stream: BinaryIO, offset: int) -> int:
    """Offset of the first member from ``offset`` on that begins a record, or -1. The stream stands at ``offset``."""
    window = _Window(stream, offset)
    return window.offset if _resync(window) else -1


def first_member(stream: BinaryIO, *, max_bytes: int) -> int:
    """Length of the member at the start of a stream, or -1 when there is none or it inflates to more."""
    window = _Window(stream, 0)
    member = _inflate(window, max_bytes)
    return member.end if member.state is MemberState.WHOLE else -1


class _Window:
    """The part of a stream from the current offset on, read as far as it was needed."""

    def __init__(self, stream: BinaryIO, offset: int) -> None:
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


def _inflate(window: _Window, max_bytes: int) -> Member:
    """The member at the window's offset."""
    start = window.offset
    if not _MAGIC.startswith(bytes(window.data[: len(_MAGIC)])[:3]) and window.fill(len(_MAGIC)):
        return Member(start, start, MemberState.DAMAGED, b"")
    inflater = zlib.decompressobj(_GZIP)
    parts: list[bytes] = []
    size = used = 0
    state = MemberState.WHOLE
    while not inflater.eof:
        if not window.fill(used + 1):
            state = MemberState.TRUNCATED
            break
        chunk = bytes(window.data[used : used + _CHUNK])
        before = inflater.copy()
        try:
            part = inflater.decompress(chunk, max(1, max_bytes - size + 1))
        except zlib.error:
            state = MemberState.DAMAGED
            parts.append(_inflate_until_error(before, chunk))
            break
        parts.append(part)
        size += len(part)
        if size > max_bytes:
            state = MemberState.DAMAGED
            break
        used += len(chunk) - len(inflater.unused_data) - len(inflater.unconsumed_tail)
    return Member(start, start + used, state, b"".join(parts))


def _inflate_until_error(inflater: zlib._Decompress, chunk: bytes) -> bytes:
    """What comes out of a chunk before its fault."""
    parts: list[bytes] = []
    for start in range(0, len(chunk), _STEP):
        try:
            parts.append(inflater.decompress(chunk[start : start + _STEP]))
        except zlib.error:
            break
    return b"".join(parts)


def _resync(window: _Window) -> bool:
    """Move the window to the first member in it that begins a record; False, with the window at the end, if none."""
    while True:
        found = window.data.find(_MAGIC)
        if found < 0:
            keep = len(_MAGIC) - 1
            window.skip(max(0, len(window.data) - keep))
            if not window.fill(len(window.data) + 1):
                window.skip(len(window.data))
                return False
            continue
        window.skip(found)
        window.fill(_CHUNK)
        if begins_a_record(bytes(window.data[:_CHUNK])):
            return True
        window.skip(1)


def begins_a_record(data: bytes) -> bool:
    """Whether bytes are the start of a gzip member that holds a WARC record."""
    try:
        return zlib.decompressobj(_GZIP).decompress(data, _PROBE).startswith(b"WARC/")
    except zlib.error:
        return False
