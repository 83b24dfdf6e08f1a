"""The pages of an XML dump of MediaWiki, each read on its own: a broken one costs itself only."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass

from marin.data.sources.wikitext import plain_text
from marin.execution import StepError

_ROOT = b"<mediawiki"
_ROOT_END = b"</mediawiki>"
_PAGE, _PAGE_END = b"<page>", b"</page>"
_BASE = re.compile(rb"<base>([^<]{1,2000})</base>")
_CHUNK = 1 << 20
_LONGEST_HEAD = 4 << 20
_ARTICLES = "0"


@dataclass(frozen=True)
class Article:
    """One article as prose."""

    title: str
    number: str
    date: str
    text: str
    url: str | None


def articles(
    stream: io.BufferedReader, name: str, longest: int, *, head: bytes = b"", begin: int = 0, is_last: bool = True
) -> Iterator[tuple[str, Article | str]]:
    """The place of every page, and the article on it or the reason why there is none. One page is in memory.

    Args:
        stream: the dump, unpacked, or a part of it that begins and ends between two pages.
        name: name of its file, for places.
        longest: bytes of markup above which a page is passed over.
        head: what stands before the first page of the dump, where the part begins behind that.
        begin: byte of the file at which the part begins, for the places of pages whose number cannot be read.
        is_last: whether the end of the dump is in the part.

    Raises:
        StepError: it is no dump of MediaWiki.
    """
    pages = _Pages(stream, longest, head, is_last)
    for number, block in enumerate(pages):
        place = f"{name}:page {number} behind byte {begin}" if begin else f"{name}:page {number}"
        if not isinstance(block, bytes):
            yield place, block
            continue
        try:
            element = ET.fromstring(block)
        except ET.ParseError:
            yield place, "broken_page"
            continue
        yield f"{name}:{element.findtext('id') or ''}", _article(element, pages.base)
    if pages.head and _ROOT not in pages.head:
        raise StepError(f"{name} is no XML dump of MediaWiki: no <mediawiki> stands at its beginning")


def head_of(stream: io.BufferedReader) -> bytes:
    """What stands before the first page of a dump."""
    data = bytearray()
    while _PAGE not in data and len(data) < _LONGEST_HEAD and (chunk := stream.read1(_CHUNK)):
        data += chunk
    return bytes(data.partition(_PAGE)[0])


class _Pages:
    """The bytes of each page, or a reason in place of one that cannot be had."""

    def __init__(self, stream: io.BufferedReader, longest: int, head: bytes, is_last: bool) -> None:
        self.head = head
        self._is_last = is_last
        self._stream = stream
        self._longest = longest
        self._data = bytearray()

    @property
    def base(self) -> str:
        """The address below which the articles are."""
        found = _BASE.search(self.head)
        return found[1].decode("utf-8", "replace").rpartition("/")[0] if found else ""

    def __iter__(self) -> Iterator[bytes | str]:
        begin = self._find(_PAGE, limit=_LONGEST_HEAD)
        self.head = self.head or bytes(self._data[: max(begin, 0)] if begin >= 0 else self._data)
        while begin >= 0:
            del self._data[:begin]
            end = self._find(_PAGE_END, limit=self._longest)
            if end >= 0:
                end += len(_PAGE_END)
                block = bytes(self._data[:end])
                yield block if len(block) <= self._longest else "too_long"
            elif len(self._data) <= self._longest:
                yield "truncated"
                return
            else:
                yield "too_long"
                end = self._longest
            del self._data[:end]
            begin = self._find(_PAGE)
        if self._is_last and self.head and _ROOT_END not in self._data:
            yield "truncated"

    def _find(self, mark: bytes, limit: int | None = None) -> int:
        """Place of a mark in the data, read on until it is there; -1 at the end, or beyond the limit."""
        looked = 0
        while (found := self._data.find(mark, looked)) < 0:
            looked = max(0, len(self._data) - len(mark) + 1)
            if limit is not None and len(self._data) > limit:
                return -1
            chunk = self._stream.read1(_CHUNK)
            if not chunk:
                return -1
            if limit is None and self.head:
                # Nothing between two pages is wanted but the end of the dump.
                dropped = max(0, looked - len(_ROOT_END))
                del self._data[:dropped]
                looked -= dropped
            self._data += chunk
        return found


def _article(page: ET.Element, base: str) -> Article | str:
    found = {element.tag: element for element in page.iter()}

    def value(tag: str) -> str:
        element = found.get(tag)
        return (element.text or "") if element is not None else ""

    if value("ns") != _ARTICLES:
        return "other_namespace"
    if "redirect" in found:
        return "redirect"
    title = value("title")
    url = f"{base}/{title.replace(' ', '_')}" if base and title else None
    return Article(title, page.findtext("id") or "", value("timestamp"), plain_text(value("text")), url)
