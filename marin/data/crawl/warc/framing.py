"""Records in a stream of plain bytes, each of which must end where the next one begins.

A record whose stated length leads anywhere else is not to be trusted: its page would be cut, or hold the next records.
It is lost as damaged, and reading goes on at the next line that begins a record.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from marin.data.crawl.warc.record import MAX_BLOCK, RawRecord
from marin.data.crawl.warc.window import Window

_BEGIN = re.compile(rb"WARC/[0-9]\.[0-9]{1,3}[ \t]*\r?\n")
_NEXT = re.compile(rb"WARC/[0-9]\.[0-9]{1,3}[ \t]*\r?\n(?=[A-Za-z][A-Za-z0-9-]{0,60}[ \t]*:)")
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_MARK = b"WARC/"
_END = b"\r\n\r\n"
_LONGEST_HEAD = 256 * 1024
_LONGEST_BEGIN = 128
_BREAKS = re.compile(rb"[\r\n]*")
_PADDING = re.compile(rb"[\r\n\0]*")


def framed_records(window: Window) -> Iterator[RawRecord]:
    """All records from the window's offset on; what is lost comes as a record with a fault. One record is in memory.

    The last record of a stream that ends within it is truncated.
    """
    skipped = _BREAKS
    while _skip(window, skipped):
        yield _next_record(window)
        skipped = _PADDING


def next_head(window: Window) -> bool:
    """Move the window, by a byte at least, to a line that begins a record; False, and to the end, if there is none."""
    looked = 1
    while True:
        found = _NEXT.search(window.data, looked)
        if found:
            window.skip(found.start())
            return True
        keep = max(0, len(window.data) - _LONGEST_BEGIN)
        window.skip(keep)
        looked = 0 if keep else 1
        if not window.fill(len(window.data) + 1):
            window.skip(len(window.data))
            return False


def _next_record(window: Window) -> RawRecord:
    """The record at the window's offset; the window goes to its end, or to the next head behind a damaged one."""
    offset = window.offset
    head = _head(window)
    if head is None:
        is_begun = _MARK.startswith(window.copy(0, len(_MARK)))
        return RawRecord(offset, {}, b"", "damaged" if next_head(window) or not is_begun else "truncated")
    size, headers = head
    stated = headers.get("content-length", "")
    if not (stated.isascii() and stated.isdigit()):
        next_head(window)
        return RawRecord(offset, headers, b"", "damaged")
    length = int(stated[:18])
    if length > MAX_BLOCK:
        return _pass_over(window, offset, headers, size, length)
    end = size + length
    if not window.fill(end):
        # Only where no other record begins is it the end of the file that came too early.
        return RawRecord(offset, headers, b"", "damaged" if next_head(window) else "truncated")
    if not _ends_well(window, end):
        next_head(window)
        return RawRecord(offset, headers, b"", "damaged")
    block = window.copy(size, end)
    window.skip(end)
    return RawRecord(offset, headers, block)


def _pass_over(window: Window, offset: int, headers: dict[str, str], size: int, length: int) -> RawRecord:
    """A block that is too large to be held. Whatever looks like a record within it is taken for the next one."""
    window.skip(size)
    while length > 0:
        if not window.fill(1):
            return RawRecord(offset, headers, b"", "truncated")
        window.fill(_LONGEST_BEGIN)
        found = _NEXT.search(window.data, 0, min(len(window.data), length))
        if found:
            window.skip(found.start())
            return RawRecord(offset, headers, b"", "damaged")
        passed = min(length, max(1, len(window.data) - _LONGEST_BEGIN))
        window.skip(passed)
        length -= passed
    return RawRecord(offset, headers, b"", "block_too_large")


def _skip(window: Window, skipped: re.Pattern[bytes]) -> bool:
    """Skip what may stand between records; False at the end of the stream."""
    while window.fill(1):
        size = _length(skipped, window.data)
        if not size:
            return True
        window.skip(size)
    return False


def _length(pattern: re.Pattern[bytes], data: bytearray, start: int = 0) -> int:
    found = pattern.match(data, start)
    return found.end() - start if found else 0


def _head(window: Window) -> tuple[int, dict[str, str]] | None:
    """Size and fields of the head at the window's offset, or None when none stands there."""
    window.fill(_LONGEST_BEGIN)
    begin = _BEGIN.match(window.data)
    if begin is None:
        return None
    end = None
    looked = begin.end() - 2
    while end is None:
        end = _END_OF_HEAD.search(window.data, max(0, looked))
        looked = len(window.data) - 3
        if end is None and (len(window.data) > _LONGEST_HEAD or not window.fill(len(window.data) + 1)):
            return None
    fields: dict[str, str] = {}
    last = ""
    for line in window.copy(begin.end(), end.start()).split(b"\n"):
        text = line.decode("utf-8", "replace")
        name, colon, value = text.partition(":")
        if line[:1] in (b" ", b"\t") and last:
            fields[last] = f"{fields[last]} {text.strip()}".strip()
        elif colon:
            last = name.strip().lower()
            fields[last] = value.strip()
    return end.end(), fields


def _ends_well(window: Window, end: int) -> bool:
    """Whether a record may end at a place: two line breaks follow, or nothing but such up to the next or the end."""
    window.fill(end + len(_MARK))
    if window.copy(end, end + len(_END)) == _END:
        return True
    place = end
    while window.fill(place + len(_MARK)) or place < len(window.data):
        padding = _length(_PADDING, window.data, place)
        if not padding:
            return window.copy(place, place + len(_MARK)) == _MARK
        place += padding
    return True
