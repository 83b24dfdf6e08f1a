"""Records of a WARC file, streamed: plain, gzip per record, gzip as a whole, or zstd.

Healthy files are read by fastwarc alone. It says nothing of a cut-off last page and stops at the first damaged member,
so the last record is always checked, and damage is passed by a walk over the gzip members.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, Literal

from fastwarc.warc import ArchiveIterator, WarcRecord

from marin.data.crawl.warc.members import MemberState, begins_a_record, walk_members

MAX_BLOCK = 256 * 1024**2
"""A longer record block is passed over and counted, so that memory stays bounded."""

Fault = Literal["damaged", "truncated", "block_too_large"]
OpenStream = Callable[[], BinaryIO]

_CHUNK = 1 << 20
_ZSTD = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True, slots=True)
class RawRecord:
    """One record: its WARC headers (names in lower case) and its block, or why the block is not there."""

    offset: int
    headers: dict[str, str]
    block: bytes
    fault: Fault | None = None

    @property
    def kind(self) -> str:
        """WARC-Type, in lower case."""
        return self.headers.get("warc-type", "unknown").lower()


@dataclass(frozen=True, slots=True)
class Span:
    """The part of a file whose records are read: those that begin from ``begin`` on and before ``end``.

    Both are places where records begin, as :mod:`marin.data.crawl.warc.splitting` finds them; an ``end`` of None is the
    end of the file.
    """

    begin: int = 0
    end: int | None = None

    def is_over(self, offset: int) -> bool:
        """Whether a record that begins at an offset belongs to the next span."""
        return self.end is not None and offset >= self.end


@dataclass
class FileReport:
    """What reading one file met.

    Attributes:
        records: records read, whole or not.
        truncated: the file ends within a record or its compressed container.
        damaged: offsets of damaged stretches, each counted as one record.
        one_member: several records lie in one gzip member, so the file can only be read from its start.
        crossed: the last record of the span reaches beyond its end, where something that looks like a record lies
            within it (an archive in an archive), or the record's length is wrong.
    """

    records: int = 0
    truncated: bool = False
    damaged: list[int] = field(default_factory=list)
    one_member: bool = False
    crossed: bool = False


def read_records(open_stream: OpenStream, report: FileReport, span: Span = Span()) -> Iterator[RawRecord]:
    """All records of a file in order; what is lost comes as a record with a fault, so that it can be counted.

    Args:
        open_stream: opens the file from its start; called again for the check of its end.
        report: filled while records are read.
        span: the part of the file to read.

    Raises:
        OSError: the stream cannot be read.
    """
    with open_stream() as stream:
        head = stream.read(4)
    if not head:
        return
    read = _read_gzip if head[:2] == b"\x1f\x8b" else _read_plain
    for record in read(open_stream, report, span):
        report.records += 1
        if record.fault == "damaged":
            report.damaged.append(record.offset)
        report.truncated = report.truncated or record.fault == "truncated"
        yield record


def _read_gzip(open_stream: OpenStream, report: FileReport, span: Span) -> Iterator[RawRecord]:
    """Records by fastwarc, one behind: a record counts once the next one could be read, its checksum included."""
    held: RawRecord | None = None
    own_member = True
    failed = False
    source = _Source(open_stream())
    try:
        with source:
            source.skip(span.begin)
            for record in _iterate(source):
                if held is not None:
                    own_member = record.offset > held.offset
                    report.one_member = report.one_member or not own_member
                    yield held
                    held = None
                if span.is_over(record.offset):
                    report.crossed = record.offset != span.end
                    return
                held = record
    except _UNREADABLE:
        source.raise_own_error()
        failed = True
    if held is None or (own_member and _is_member(open_stream, held.offset)):
        yield from _walk(open_stream, held.offset if held else span.begin, span)
    elif failed:
        yield RawRecord(held.offset, {}, b"", "truncated")
    else:
        yield held


def _is_member(open_stream: OpenStream, offset: int) -> bool:
    """Whether a record's gzip member starts at an offset; not so where the whole file is one member."""
    with open_stream() as stream:
        _seek(stream, offset)
        return begins_a_record(stream.read(_CHUNK))


def _walk(open_stream: OpenStream, offset: int, span: Span) -> Iterator[RawRecord]:
    """Records from a gzip member on, by the walk that survives damage."""
    with open_stream() as stream:
        _seek(stream, offset)
        for member in walk_members(stream, offset, max_bytes=2 * MAX_BLOCK):
            if span.is_over(member.offset):
                return
            if member.state is MemberState.WHOLE:
                yield from _records_of_member(member.data, member.offset)
                continue
            # Only a file that is one member as a whole has several records here; the last one is not to be trusted.
            before = list(_records_of_member(member.data, member.offset))[:-1]
            yield from before
            fault: Fault = "truncated" if before or member.state is MemberState.TRUNCATED else "damaged"
            yield RawRecord(member.offset, {}, b"", fault)


def _records_of_member(data: bytes, offset: int) -> Iterator[RawRecord]:
    found = False
    try:
        for record in _iterate(io.BytesIO(data)):
            found = True
            fault: Fault | None = "damaged" if record.fault == "truncated" else record.fault
            yield RawRecord(offset, record.headers, record.block, fault)
    except _UNREADABLE:
        pass
    if not found and data.strip(b"\0\r\n"):
        yield RawRecord(offset, {}, b"", "damaged")


def _read_plain(open_stream: OpenStream, report: FileReport, span: Span) -> Iterator[RawRecord]:
    """Records of an uncompressed or zstd file; in an uncompressed one, damage is passed to the next record's head."""
    base = span.begin
    while True:
        held: RawRecord | None = None
        source = _Source(open_stream())
        try:
            with source:
                source.skip(base)
                for record in _iterate(source):
                    if held is not None:
                        yield held
                        held = None
                    if span.is_over(record.offset):
                        report.crossed = record.offset != span.end
                        return
                    held = record
            if held is not None:
                yield held
            return
        except _UNREADABLE:
            source.raise_own_error()
        lost = base if held is None else held.offset
        after = lost + (1 if held is None else len(held.block))
        if held is not None:
            yield held
        with open_stream() as stream:
            if stream.read(4) == _ZSTD:
                yield RawRecord(lost, {}, b"", "truncated")
                return
        if held is None or held.fault is None:
            yield RawRecord(lost, {}, b"", "damaged")
        with open_stream() as stream:
            _seek(stream, lost)
            base = next_head(stream, lost, after)
        if base < 0 or span.is_over(base):
            return


def next_head(stream: BinaryIO, start: int, after: int) -> int:
    """Offset of the next line that begins a record behind ``after``, or -1. The stream stands at ``start``."""
    needle = b"\r\n\r\nWARC/1."
    position, tail = start, b""
    while chunk := stream.read(_CHUNK):
        data = tail + chunk
        begin = position - len(tail)
        found = data.find(needle, max(0, after - begin))
        if found >= 0:
            return begin + found + 4
        position += len(chunk)
        tail = data[-(len(needle) - 1) :]
    return -1


_UNREADABLE = (OSError, ValueError, EOFError)


class _Source:
    """A stream that remembers its own error: a lost connection is not a damaged record."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._error: Exception | None = None
        self._position = 0

    def __enter__(self) -> _Source:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stream.close()

    def read(self, size: int = -1) -> bytes:
        """Read from the stream."""
        try:
            data = self._stream.read(size)
        except Exception as error:
            self._error = error
            raise
        self._position += len(data)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        """Seek in the stream."""
        self._position = self._stream.seek(offset, whence)
        return self._position

    def tell(self) -> int:
        """Position in the file."""
        return self._position

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()

    def skip(self, offset: int) -> None:
        """Go to an offset of a stream that stands at its start."""
        _seek(self._stream, offset)
        self._position = offset

    def raise_own_error(self) -> None:
        """Raise what reading the stream raised, if anything."""
        if self._error is not None:
            raise OSError(f"reading failed: {self._error}") from self._error


def _iterate(stream: _Source | BinaryIO) -> Iterator[RawRecord]:
    """Records from where the stream stands; their offsets are those of the stream's own ``tell``."""
    for record in ArchiveIterator(stream, parse_http=False):
        yield _to_record(record)


def _to_record(record: WarcRecord) -> RawRecord:
    headers = {name.lower(): value.strip() for name, value in record.headers.items()}
    offset = record.stream_pos
    declared = record.content_length
    if declared > MAX_BLOCK:
        record.consume()
        return RawRecord(offset, headers, b"", "block_too_large")
    block = record.reader.read()
    if "content-length" not in headers:
        return RawRecord(offset, headers, b"", "damaged")
    if len(block) < declared:
        return RawRecord(offset, headers, b"", "truncated")
    return RawRecord(offset, headers, block)


def _seek(stream: BinaryIO, offset: int) -> None:
    if stream.seekable():
        stream.seek(offset)
        return
    while offset > 0 and (chunk := stream.read(min(offset, _CHUNK))):
        offset -= len(chunk)
