"""The content of a file of packed members, gzip or zstd, as one stream that ends where a member cannot be read."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

import zstandard

from marin.data.crawl.warc.window import Readable, Window

_CHUNK = 64 * 1024
_STEP = 64
_PROBE = 64
_PROBE_INPUT = 64 * 1024
_ZSTD_INPUT = 1024
"""A zstd block of a few bytes can stand for 128 KiB, so input goes in by this much at a time."""


@dataclass(frozen=True, slots=True)
class Packing:
    """A way of packing: what every member begins with, and how much input is given to it at a time."""

    magic: bytes
    member: Callable[[], Any]
    input_bytes: int


class _GzipMember:
    """One gzip member that is unpacked."""

    def __init__(self) -> None:
        self._inflater = zlib.decompressobj(31)

    @property
    def eof(self) -> bool:
        return self._inflater.eof

    @property
    def rest(self) -> bytes:
        return self._inflater.unused_data

    def feed(self, data: bytes) -> tuple[bytes, bool]:
        """The content of some input, and whether it could be read."""
        before = self._inflater.copy()
        try:
            return self._inflater.decompress(data), True
        except zlib.error:
            return _until_error(before, data), False


def _until_error(inflater: Any, data: bytes) -> bytes:
    """What comes out of input before its fault."""
    parts: list[bytes] = []
    for start in range(0, len(data), _STEP):
        try:
            parts.append(inflater.decompress(data[start : start + _STEP]))
        except zlib.error:
            break
    return b"".join(parts)


class _ZstdMember:
    """One zstd frame that is unpacked."""

    def __init__(self) -> None:
        self._frame = zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()

    @property
    def eof(self) -> bool:
        return self._frame.eof

    @property
    def rest(self) -> bytes:
        return self._frame.unused_data

    def feed(self, data: bytes) -> tuple[bytes, bool]:
        try:
            return self._frame.decompress(data), True
        except zstandard.ZstdError:
            return b"", False


GZIP = Packing(b"\x1f\x8b\x08", _GzipMember, 16 * 1024)
ZSTD = Packing(b"\x28\xb5\x2f\xfd", _ZstdMember, _ZSTD_INPUT)


class PackedStream:
    """The content of all members of a file from one on, up to the first that cannot be read.

    Args:
        stream: stands at the beginning of a member.
        offset: place of that in the file.
        packing: how the members are packed.

    Attributes:
        fault: why the content ends before the file does; None as long as it does not.
        member_offset: place in the file of the member that is read.
        member_begin: place in the content where that begins.
    """

    def __init__(self, stream: Readable, offset: int, packing: Packing) -> None:
        self.fault: Literal["damaged", "truncated"] | None = None
        self.member_offset = offset
        self.member_begin = 0
        self._packing = packing
        self._raw = Window(stream, offset)
        self._member: Any = None
        self._begins: deque[tuple[int, int]] = deque([(0, offset)])
        self._given = 0

    def read(self, size: int) -> bytes:
        """Some content, as much as a piece of input gives; none at the end."""
        while self.fault is None:
            if self._member is None and not self._begin():
                return b""
            if not self._raw.fill(1):
                self.fault = "truncated"
                return b""
            data = self._raw.copy(0, self._packing.input_bytes)
            content, is_good = self._member.feed(data)
            if not is_good:
                self.fault = "damaged"
            self._raw.skip(len(data) - (len(self._member.rest) if self._member.eof else 0))
            if is_good and self._member.eof:
                self._member = None
            self._given += len(content)
            if content:
                return bytes(content)
        return b""

    def place_of(self, content: int) -> int:
        """Place in the file of the member in which a byte of the content lies; asked for in ascending order."""
        while len(self._begins) > 1 and self._begins[1][0] <= content:
            self._begins.popleft()
        return self._begins[0][1]

    def _begin(self) -> bool:
        """Begin the next member; False at the end of the file."""
        while self._raw.fill(1) and self._raw.data[0] == 0:  # padding
            self._raw.skip(1)
        if not self._raw.fill(1):
            return False
        self.member_offset, self.member_begin = self._raw.offset, self._given
        self._begins.append((self._given, self._raw.offset))
        self._raw.fill(len(self._packing.magic))
        head = self._raw.copy(0, len(self._packing.magic))
        if head != self._packing.magic:
            self.fault = "truncated" if self._packing.magic.startswith(head) else "damaged"
            return False
        self._member = self._packing.member()
        return True


def next_member(stream: BinaryIO, offset: int, packing: Packing = GZIP) -> int:
    """Offset of the first member from ``offset`` on that begins a record, or -1. The stream stands at ``offset``."""
    window = Window(stream, offset)
    while True:
        found = window.data.find(packing.magic)
        if found < 0:
            window.skip(max(0, len(window.data) - len(packing.magic) + 1))
            if not window.fill(len(window.data) + 1):
                return -1
            continue
        window.skip(found)
        window.fill(_PROBE_INPUT)
        if begins_a_record(window.copy(0, _PROBE_INPUT), packing):
            return window.offset
        window.skip(1)


def begins_a_record(data: bytes, packing: Packing = GZIP) -> bool:
    """Whether bytes are the start of a member that begins with a WARC record."""
    member = packing.member()
    content = b""
    for start in range(0, len(data), _PROBE):
        part, is_good = member.feed(data[start : start + _PROBE])
        content += part
        if len(content) >= len(b"WARC/") or not is_good or member.eof:
            break
    return content.startswith(b"WARC/")


def first_member(stream: BinaryIO, *, most_bytes: int) -> int:
    """Length of the gzip member at the start of a stream, or -1 when there is none or it holds more than that."""
    packed = PackedStream(stream, 0, GZIP)
    size = 0
    while content := packed.read(_CHUNK):
        if packed.member_offset:
            return packed.member_offset
        size += len(content)
        if size > most_bytes:
            return -1
    return packed.member_offset or -1
