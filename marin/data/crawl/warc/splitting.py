"""Where a large WARC file can be read in parts: at records of a plain file, or with gzip members of their own."""

from __future__ import annotations

from itertools import pairwise
from typing import BinaryIO

from marin.data.crawl.warc.framing import next_head
from marin.data.crawl.warc.packed import begins_a_record, first_member, next_member
from marin.data.crawl.warc.record import MAX_BLOCK
from marin.data.crawl.warc.records import OpenStream, Span
from marin.data.crawl.warc.window import Window

_GZIP = b"\x1f\x8b"
_WARC = b"WARC/"
_PROBE = 64 * 1024


def split_file(open_stream: OpenStream, size: int, part_bytes: int) -> list[Span]:
    """Spans of about equal size, none much above ``part_bytes``, that together are the file.

    A file that is one gzip member as a whole, or zstd, is a single span. Only the bytes at the places are read.

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
        head = stream.read(len(_WARC))
        is_gzip = head.startswith(_GZIP)
        if not (head == _WARC or (is_gzip and _has_member_per_record(stream))):
            return [Span()]
        begins = [0]
        for part in range(1, parts):
            target = max(size * part // parts, begins[-1] + 1)
            stream.seek(target)
            found = next_member(stream, target) if is_gzip else _next_plain(stream, target)
            if found < 0:
                break
            begins.append(found)
    return [Span(begin, end) for begin, end in pairwise([*begins, None]) if begin is not None]


def _has_member_per_record(stream: BinaryIO) -> bool:
    stream.seek(0)
    end = first_member(stream, most_bytes=MAX_BLOCK)
    if end < 0:
        return False
    stream.seek(end)
    return begins_a_record(stream.read(_PROBE))


def _next_plain(stream: BinaryIO, target: int) -> int:
    window = Window(stream, target)
    window.fill(1)
    return window.offset if next_head(window) else -1
