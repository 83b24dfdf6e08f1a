"""crawl-07: only successful HTML responses become documents; every other record has its reason."""

from marin.data.crawl.config import external_crawl
from marin.data.crawl.steps import extract_pages, fetch_crawl
from marin.data.documents.io import iterate_documents
from marin.execution import materialise
from tests.data.crawl.warcs import html_page, http, record, warcinfo, write_warc

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 64


def test_fourteen_kinds_of_records_give_the_good_pages_only(tmp_path):
    def page(marker, **response):
        return http(html_page(marker).encode(), **response)

    records = [
        warcinfo(),
        record(b"GET / HTTP/1.1\r\nHost: requestmark\r\n\r\n", kind="request", content_type="application/http"),
        record(page("okmark")),
        record(b"note: metadatamark\r\n", kind="metadata", content_type="application/warc-fields"),
        record(page("fourohfourmark", status="404 Not Found")),
        record(page("redirectmark", status="301 Moved Permanently")),
        record(page("servererrmark", status="503 Service Unavailable")),
        record(http(PNG, "Content-Type: image/png")),
        record(http(PNG, "Content-Type: text/html")),
        record(http(b"User-agent: *\nDisallow: /robotsmark\n", "Content-Type: text/plain"), uri="http://a/robots.txt"),
        record(http(html_page("notypemark").encode(), "Server: none"), uri="http://notype.example/"),
        record(http(b"", "Content-Type: text/html"), kind="revisit"),
        record(b"20260101\nok. 300 IN A 192.0.2.1 dnsmark\n", uri="dns:ok.example", content_type="text/dns"),
        record(http(b"", "Content-Type: text/html", "Content-Length: 0")),
        record(b"whatever", kind="somethingelse", content_type="text/plain"),
    ]
    path = write_warc(tmp_path / "mixed.warc.gz", records)
    documents = materialise(
        extract_pages(fetch_crawl(external_crawl("web", [str(path)], version="1"))), prefix=str(tmp_path / "store")
    )

    texts = [document.text for document in iterate_documents(documents)]
    assert len(texts) == 2
    assert "okmark" in texts[0]
    assert "notypemark" in texts[1]
    dropped = documents.read_json("extraction.json")["flow"]["dropped"]
    assert dropped == {
        "warcinfo": 1,
        "request": 1,
        "metadata": 1,
        "http_4xx": 1,
        "http_3xx": 1,
        "http_5xx": 1,
        "not_html": 2,
        "robots": 1,
        "revisit": 1,
        "dns": 1,
        "empty_payload": 1,
        "unknown_record": 1,
    }
