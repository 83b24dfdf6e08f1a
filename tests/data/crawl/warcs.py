"""Small WARC files made by hand, so that they can be wrong on purpose."""

from __future__ import annotations

import gzip
from pathlib import Path

WORDS = (
    "The harbour master wrote that the tide would turn before noon and that every boat should be ready. "
    "Nobody in the village had seen so many nets laid out to dry at once, and the children counted them twice. "
)


def html_page(marker: str, *, head: str = "", paragraphs: int = 6) -> str:
    """A page whose main text holds a marker word."""
    body = "".join(f"<p>{marker} paragraph {number}. {WORDS}</p>\n" for number in range(paragraphs))
    return (
        f"<!DOCTYPE html>\n<html><head>{head}<title>{marker}</title></head><body><nav><a href='/'>Home</a></nav>"
        f"<article><h1>{marker}</h1>\n{body}</article><footer>imprint</footer></body></html>"
    )


def http(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    """An HTTP response; without headers it is UTF-8 HTML."""
    lines = [f"HTTP/1.1 {status}", *(headers or ("Content-Type: text/html; charset=utf-8",))]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def record(
    block: bytes,
    *,
    kind: str = "response",
    uri: str | None = "http://site.example/",
    content_type: str = "application/http; msgtype=response",
    extra: str = "",
    length: int | None = None,
) -> bytes:
    """One WARC record, uncompressed."""
    target = f"WARC-Target-URI: {uri}\r\n" if uri else ""
    head = (
        f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <urn:uuid:00000000-0000-4000-8000-{len(block):012d}>\r\n"
        f"WARC-Date: 2026-01-02T03:04:05Z\r\n{target}Content-Type: {content_type}\r\n{extra}"
        f"Content-Length: {len(block) if length is None else length}\r\n\r\n"
    )
    return head.encode() + block + b"\r\n\r\n"


def page_record(marker: str, **page: int) -> bytes:
    """A response record with a page at a URL that is named for its marker."""
    return record(http(html_page(marker, **page).encode()), uri=f"http://{marker}.example/")


def warcinfo() -> bytes:
    """The record that most files begin with."""
    return record(b"software: by hand\r\n", kind="warcinfo", uri=None, content_type="application/warc-fields")


def write_warc(path: Path, records: list[bytes], *, per_record: bool = True) -> Path:
    """A gzip WARC, of one member a record or of a single one."""
    members = [gzip.compress(item, mtime=0) for item in records] if per_record else [gzip.compress(b"".join(records))]
    path.write_bytes(b"".join(members))
    return path
