"""Records of a WARC file, streamed: plain, gzip per record, gzip as a whole, or zstd.

Healthy gzip files are read by fastwarc alone. It says nothing of a cut-off last page and stops at the first damaged
member, so the last record is always checked, and damage is passed by a walk over the members.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import BinaryIO

from fastwarc.warc import ArchiveIterator, WarcRecord

from marin.data.crawl.warc.framing import framed_records
from marin.data.crawl.warc.packed import GZIP, ZSTD, PackedStream, Packing, begins_a_record, next_member, packing_of
from marin.data.crawl.warc.record import MAX_BLOCK, RawRecord
from marin.data.crawl.warc.window import Window

OpenStream = Callable[[], BinaryIO]

_CHUNK = 1 << 20


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
        head = stream.read(_CHUNK)
    if not head:
        return
    for record in _reader_of(head)(open_stream, report, span):
        report.records += 1
        if record.fault == "damaged":
            report.damaged.append(record.offset)
        report.truncated = report.truncated or record.fault == "truncated"
        yield record


def _reader_of(head: bytes) -> Callable[[OpenStream, FileReport, Span], Iterator[RawRecord]]:
    """How a file is read, by its first bytes; where these are damaged, by the first record in a packing behind them."""
    if head.startswith(GZIP.magic):
        return _read_gzip
    if head.startswith(b"WARC/"):
        return _read_plain
    packing = packing_of(io.BytesIO(head))
    if (packing is not None and packing.magic == ZSTD.magic) or next_member(io.BytesIO(head), 0, ZSTD) >= 0:
        return _read_zstd
    return _read_gzip if next_member(io.BytesIO(head), 0, GZIP) >= 0 else _read_plain


def _read_gzip(open_stream: OpenStream, report: FileReport, span: Span) -> Iterator[RawRecord]:
    """Records by fastwarc, one behind: a record counts once the next one could be read, its checksum included."""
    held: RawRecord | None = None
    own_member = True
    failed = False
    given = 0
    source = _Source(open_stream())
    try:
        with source:
            source.skip(span.begin)
            for record in _iterate(source):
                if held is not None:
                    own_member = record.offset > held.offset
                    report.one_member = report.one_member or not own_member
                    yield held
                    given += 1
                    held = None
                if span.is_over(record.offset):
                    report.crossed = record.offset != span.end
                    return
                held = record
    except Exception as error:
        source.raise_own_error()
        if not isinstance(error, _UNREADABLE):
            raise
        failed = True
    if held is None or (own_member and _is_member(open_stream, held.offset)):
        yield from _walk(open_stream, held.offset if held else span.begin, GZIP, report, span)
    elif failed or held.fault is not None:
        # Where members hold several records, or parts of one, the walk must begin where they do.
        yield from islice(_walk(open_stream, span.begin, GZIP, report, span), given, None)
    else:
        yield held


def _is_member(open_stream: OpenStream, offset: int) -> bool:
    """Whether a record's gzip member starts at an offset; not so where the whole file is one member."""
    with open_stream() as stream:
        _seek(stream, offset)
        return begins_a_record(stream.read(_CHUNK))


def _walk(open_stream: OpenStream, place: int, packing: Packing, report: FileReport, span: Span) -> Iterator[RawRecord]:
    """Records of packed members from a place on, by the walk that survives damage. One record is in memory.

    A member that cannot be read costs the record in it, or the record that was reached in it where it holds several.
    """
    while place >= 0 and not span.is_over(place):
        held: RawRecord | None = None
        end = 0
        shares = False
        with open_stream() as stream:
            _seek(stream, place)
            content = PackedStream(stream, place, packing)
            window = Window(content, 0)
            for record in framed_records(window):
                offset = content.place_of(record.offset)
                if held is not None:
                    yield held
                    shares = held.offset == offset
                    report.one_member = report.one_member or shares
                held = replace(record, offset=offset)
                end = window.offset
                if span.is_over(held.offset):
                    report.crossed = held.offset != span.end
                    return
        if content.fault is None:
            if held is not None:
                yield held
            return
        if held is not None and end <= content.member_begin:
            yield held
            held, shares = None, False
        with open_stream() as stream:
            _seek(stream, content.member_offset + 1)
            place = next_member(stream, content.member_offset + 1, packing)
        offset = content.member_offset if held is None else held.offset
        # Behind damage within a member of many records nobody knows how many are lost.
        is_cut = place < 0 and (content.fault == "truncated" or shares)
        yield RawRecord(offset, {}, b"", "truncated" if is_cut else "damaged")


def _read_plain(open_stream: OpenStream, report: FileReport, span: Span) -> Iterator[RawRecord]:
    with open_stream() as stream:
        _seek(stream, span.begin)
        for record in framed_records(Window(stream, span.begin)):
            if span.is_over(record.offset):
                report.crossed = record.offset != span.end
                return
            yield record


def _read_zstd(open_stream: OpenStream, report: FileReport, span: Span) -> Iterator[RawRecord]:
    with open_stream() as stream:
        packing = packing_of(stream)
    return _walk(open_stream, span.begin, packing or ZSTD, report, span)


_UNREADABLE = (OSError, ValueError, EOFError)
"""What fastwarc raises at damage."""


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
            raise self._error


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
