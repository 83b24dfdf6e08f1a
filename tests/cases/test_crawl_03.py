"""crawl-03: encoding headers that do not match the body."""

import gzip
import unicodedata
import zlib

from marin.data.crawl.config import external_crawl
from marin.data.crawl.steps import extract_pages, fetch_crawl
from marin.data.documents.io import iterate_documents
from marin.execution import materialise
from tests.data.crawl.warcs import html_page, http, record, warcinfo, write_warc


def _chunked(body: bytes) -> bytes:
    parts = (body[:700], body[700:])
    return b"".join(f"{len(part):x}\r\n".encode() + part + b"\r\n" for part in parts) + b"0\r\n\r\n"


def test_readable_bodies_come_out_whatever_the_label_and_half_a_body_is_counted(tmp_path):
    def page(marker):
        return html_page(marker).encode()

    half = gzip.compress(page("gzcutmark"))
    bodies = [
        (page("gzplainmark"), "Content-Encoding: gzip"),
        (gzip.compress(page("gzrealmark")), "Content-Encoding: gzip"),
        (page("brplainmark"), "Content-Encoding: br"),
        (page("notchunkedmark"), "Transfer-Encoding: chunked"),
        (_chunked(page("chunkedmark")), "Transfer-Encoding: chunked"),
        (zlib.compress(page("zlibmark")), "Content-Encoding: deflate"),
        (half[: len(half) // 2], "Content-Encoding: gzip"),
        (gzip.compress(page("unlabelledmark")), "X-Nothing: said"),
        (page("lastmark"), "Content-Encoding: identity"),
    ]
    records = [warcinfo()]
    for number, (body, header) in enumerate(bodies):
        block = http(body, "Content-Type: text/html; charset=utf-8", header)
        records.append(record(block, uri=f"http://e{number}.example/"))
    path = write_warc(tmp_path / "encodings.warc.gz", records)
    documents = materialise(
        extract_pages(fetch_crawl(external_crawl("web", [str(path)], version="1"))), prefix=str(tmp_path / "store")
    )

    texts = [document.text for document in iterate_documents(documents)]
    wanted = ["gzplain", "gzreal", "brplain", "notchunked", "chunked", "zlib", "unlabelled", "last"]
    assert [next(word for word in wanted if f"{word}mark paragraph 5" in text) for text in texts] == wanted
    assert not any(unicodedata.category(c) in ("Cc", "Co", "Cn") and c not in "\n\t" for text in texts for c in text)
    assert not any("\ufffd" in text for text in texts)
    assert documents.read_json("extraction.json")["flow"]["dropped"] == {"broken_body": 1, "warcinfo": 1}
