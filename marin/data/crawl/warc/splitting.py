"""Where a large WARC file can be read in parts: at records of a plain file, or of gzip members or zstd frames."""

from __future__ import annotations

from itertools import pairwise
from typing import BinaryIO

from marin.data.crawl.warc.framing import next_head
from marin.data.crawl.warc.packed import Packing, begins_a_record, next_member, packing_of, second_member
from marin.data.crawl.warc.record import MAX_BLOCK
from marin.data.crawl.warc.records import OpenStream, Span
from marin.data.crawl.warc.window import Window

_WARC = b"WARC/"
_PROBE = 64 * 1024


def split_file(open_stream: OpenStream, size: int, part_bytes: int) -> list[Span]:
    """Spans of about equal size, none much above ``part_bytes``, that together are the file.

    A file that is one gzip member or zstd frame as a whole is a single span. Only the bytes at the places are read.

    Args:
        open_stream: opens the file from its start; the stream can seek.
        size: size of the file.
        part_bytes: bytes of a part.
    """
    parts = -(-size // part_bytes)
    if parts < 2:
        return [Span()]
    with open_stream() as stream:
        if not stream.seekable():
            return [Span()]
        packing = packing_of(stream)
        stream.seek(0)
        is_plain = packing is None and stream.read(len(_WARC)) == _WARC
        if not (is_plain or (packing is not None and _has_member_per_record(stream, packing))):
            return [Span()]
        begins = [0]
        for part in range(1, parts):
            target = max(size * part // parts, begins[-1] + 1)
            stream.seek(target)
            found = _next_plain(stream, target) if packing is None else next_member(stream, target, packing)
            if found < 0:
                break
            begins.append(found)
    return [Span(begin, end) for begin, end in pairwise([*begins, None]) if begin is not None]


def _has_member_per_record(stream: BinaryIO, packing: Packing) -> bool:
    stream.seek(0)
    second = second_member(stream, packing, most_bytes=MAX_BLOCK)
    if second < 0:
        return False
    stream.seek(second)
    return begins_a_record(stream.read(_PROBE), packing)


def _next_plain(stream: BinaryIO, target: int) -> int:
    window = Window(stream, target)
    window.fill(1)
    return window.offset if next_head(window) else -1
