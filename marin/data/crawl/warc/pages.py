"""Which records are pages: successful HTML responses, and the texts of WET files. Every other record has a reason."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from marin.data.crawl.warc.charset import DecodedText, decode_page
from marin.data.crawl.warc.record import RawRecord
from marin.data.crawl.warc.response import BodyError, Response, decode_body, parse_response

_HTML_TYPES = frozenset({"text/html", "application/xhtml+xml", "application/xhtml"})
_UNSPECIFIC_TYPES = frozenset(
    {"", "unknown", "unknown/unknown", "application/octet-stream", "application/xml", "text/xml"}
)
_HTML_START = re.compile(
    rb"^(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]{0,200}\?>\s*)?(?:<!--(?:(?!-->).){0,2000}-->\s*)*<(?:!doctype\s+html|html|head|body)\b",
    re.IGNORECASE | re.DOTALL,
)
_BINARY_START = re.compile(rb"^(?:%PDF-|\x89PNG|\xff\xd8\xff|GIF8[79]a|PK\x03\x04|RIFF|\x00\x00\x01\x00)")
_OTHER_KINDS = frozenset(
    {"warcinfo", "request", "metadata", "revisit", "resource", "conversion", "continuation"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class WebPage:
    """A page that was fetched well.

    Attributes:
        url: where it was found, None when the record does not say.
        date: when it was fetched, as the record says.
        content: the page: markup, or text that somebody extracted before.
        is_text: whether the content is text already.
        charset: codec of the page.
        charset_from: what named the codec.
        flags: what was wrong with the record, but not wrong enough to lose it.
    """

    url: str | None
    date: str | None
    content: str
    is_text: bool
    charset: str
    charset_from: str
    flags: tuple[str, ...]


def page_of(record: RawRecord) -> WebPage | str:
    """The page in a record, or the reason why it holds none."""
    if record.fault is not None:
        return record.fault
    url = _target(record.headers)
    if record.kind == "conversion" and _media_type(record.headers.get("content-type", "")) == "text/plain":
        return _text_page(record, url)
    if record.kind != "response":
        return record.kind if record.kind in _OTHER_KINDS else "unknown_record"
    if not record.block.strip():
        return "empty_payload"
    response = parse_response(record.block)
    if response is None:
        return "dns" if (url or "").startswith("dns:") else "not_http"
    if response.status != 200:
        return (
            f"http_{response.status // 100}xx"
            if 100 <= response.status < 600 and response.status != 204
            else ("empty_payload" if response.status == 204 else "http_malformed")
        )
    if url is not None and _is_robots(url):
        return "robots"
    if not response.body:
        return "empty_payload"
    content_type = response.headers.get("content-type", "")
    try:
        body = decode_body(response)
    except BodyError as error:
        return str(error)
    if not body.data.strip():
        return "empty_payload"
    if not _is_html(content_type, record.headers.get("warc-identified-payload-type", ""), body.data):
        return "not_html"
    decoded = decode_page(body.data, content_type)
    flags = list(body.flags)
    if decoded.bad_labels:
        flags.append("charset_label_wrong")
    if _is_short(response):
        flags.append("shorter_than_stated")
    if "warc-truncated" in record.headers:
        flags.append("warc_truncated")
    return _page(record, url, decoded, flags, is_text=False)


def _text_page(record: RawRecord, url: str | None) -> WebPage | str:
    """The text of a WET record."""
    if not record.block.strip():
        return "empty_payload"
    decoded = decode_page(record.block, record.headers["content-type"])
    return _page(record, url, decoded, ["charset_label_wrong"] if decoded.bad_labels else [], is_text=True)


def _page(record: RawRecord, url: str | None, decoded: DecodedText, flags: list[str], *, is_text: bool) -> WebPage:
    return WebPage(
        url=url,
        date=record.headers.get("warc-date"),
        content=decoded.text,
        is_text=is_text,
        charset=decoded.charset,
        charset_from=decoded.origin,
        flags=tuple(flags),
    )


def _is_short(response: Response) -> bool:
    """Whether HTTP promised more bytes than there are. The record's own length delimits it; this only notices a cut."""
    stated = response.headers.get("content-length", "")
    coded = response.headers.get("content-encoding") or response.headers.get("transfer-encoding")
    return not coded and stated.isascii() and stated.isdigit() and len(response.body) < int(stated[:18])


def _target(headers: Mapping[str, str]) -> str | None:
    """The record's URI, without the angle brackets that some writers put around it."""
    return headers.get("warc-target-uri", "").strip().removeprefix("<").removesuffix(">").strip() or None


def _media_type(stated: str) -> str:
    return stated.partition(";")[0].strip().lower()


def _is_robots(url: str) -> bool:
    try:
        return urlsplit(url).path == "/robots.txt"
    except ValueError:
        return False


def _is_html(content_type: str, identified_type: str, body: bytes) -> bool:
    """By the server's word, else by the archive's, else by how the body begins. XHTML with an XML head is HTML."""
    if _BINARY_START.match(body):
        return False
    for stated in (content_type, identified_type):
        media_type = _media_type(stated)
        if media_type in _HTML_TYPES:
            return True
        if media_type not in _UNSPECIFIC_TYPES:
            return False
    return _HTML_START.match(body) is not None
