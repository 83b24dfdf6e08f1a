"""The content of a file of packed members, gzip or zstd, as one stream that ends where a member cannot be read."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, BinaryIO, Literal

import zstandard

from marin.data.crawl.warc.window import Readable, Window

_CHUNK = 64 * 1024
_STEP = 64
_PROBE = 64
_PROBE_INPUT = 64 * 1024
_ZSTD_INPUT = 1024
"""A zstd block of a few bytes can stand for 128 KiB, so input goes in by this much at a time."""
_SKIPPABLE = b"\x2a\x4d\x18"
"""What a zstd frame has behind a byte from 0x50 to 0x5f that is to be passed over (RFC 8878, section 3.1.2)."""
_DICTIONARY = b"\x5d" + _SKIPPABLE
_LONGEST_DICTIONARY = 128 * 1024**2


@dataclass(frozen=True, slots=True)
class Packing:
    """A way of packing.

    Attributes:
        magic: what every member begins with.
        member: begins to unpack a member.
        input_bytes: how much input is given to it at a time.
        skips: whether frames may stand between members that are to be passed over.
    """

    magic: bytes
    member: Callable[[], Any]
    input_bytes: int
    skips: bool = False


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

    def __init__(self, dictionary: zstandard.ZstdCompressionDict | None = None) -> None:
        context = zstandard.ZstdDecompressor(dict_data=dictionary, max_window_size=1 << 31)
        self._frame = context.decompressobj()

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
ZSTD = Packing(b"\x28\xb5\x2f\xfd", _ZstdMember, _ZSTD_INPUT, skips=True)


def packing_of(stream: BinaryIO) -> Packing | None:
    """How a file is packed, by its beginning, where the stream stands; None when it is not.

    A zstd file may begin with a dictionary that all its frames need, which may be packed itself
    (https://iipc.github.io/warc-specifications/specifications/warc-zstd/). One that cannot be read is none: the frames
    are damaged then.
    """
    head = stream.read(8)
    if head.startswith(GZIP.magic[:2]):
        return GZIP
    if not head.startswith(_DICTIONARY):
        return ZSTD if head.startswith(ZSTD.magic) else None
    size = int.from_bytes(head[4:], "little")
    dictionary = _dictionary(stream.read(size)) if size <= _LONGEST_DICTIONARY else None
    return replace(ZSTD, member=partial(_ZstdMember, dictionary))


def _dictionary(data: bytes) -> zstandard.ZstdCompressionDict | None:
    try:
        if data.startswith(ZSTD.magic):
            data = zstandard.ZstdDecompressor().decompress(data, max_output_size=_LONGEST_DICTIONARY)
        dictionary = zstandard.ZstdCompressionDict(data)
        zstandard.ZstdDecompressor(dict_data=dictionary)
    except zstandard.ZstdError:
        return None
    return dictionary


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
        while self._raw.fill(1):
            if self._raw.data[0] == 0:  # padding
                self._raw.skip(1)
            elif not self._at_skippable():
                break
            elif not self._pass(8 + int.from_bytes(self._raw.copy(4, 8), "little")):
                self.fault = "truncated"
                return False
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

    def _at_skippable(self) -> bool:
        return (
            self._packing.skips
            and self._raw.fill(8)
            and 0x50 <= self._raw.data[0] <= 0x5F
            and self._raw.copy(1, 4) == _SKIPPABLE
        )

    def _pass(self, size: int) -> bool:
        """Pass over some bytes of the file; False where it ends before."""
        while size and self._raw.fill(1):
            passed = min(size, len(self._raw.data))
            self._raw.skip(passed)
            size -= passed
        return not size


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


def second_member(stream: BinaryIO, packing: Packing, *, most_bytes: int) -> int:
    """Place of the member behind the first one of a file, where the stream stands; -1 when there is none, or the first
    holds more than so many bytes."""
    packed = PackedStream(stream, 0, packing)
    size = 0
    first = -1
    while content := packed.read(_CHUNK):
        first = packed.member_offset if first < 0 else first
        if packed.member_offset != first:
            return packed.member_offset
        size += len(content)
        if size > most_bytes:
            return -1
    return packed.member_offset if packed.member_offset != first else -1
