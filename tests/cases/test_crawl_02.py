"""crawl-02: a charset label that no codec knows costs nothing."""

from marin.data.crawl.config import external_crawl
from marin.data.crawl.steps import extract_pages, fetch_crawl
from marin.data.documents.io import iterate_documents
from marin.execution import materialise
from tests.data.crawl.warcs import html_page, http, record, warcinfo, write_warc

PROBE = "café naïve 東京"
LABELS = ("utf-4", "windows-UTF-8", "unicode", "none", '"utf-8"', "utf8;", "x-unknown-charset", "")


def with_probe(marker: str, probe: str) -> str:
    """A page that begins with a few words before its heading."""
    return html_page(marker).replace("<article>", f"<article><p>{probe}</p>")


def test_every_page_comes_out_and_bad_labels_are_counted(tmp_path):
    records = [warcinfo()]
    for number, label in enumerate(LABELS):
        body = with_probe(f"label{number}mark", f"{PROBE} Журнал").encode()
        records.append(
            record(http(body, f"Content-Type: text/html; charset={label}"), uri=f"http://c{number}.example/")
        )
    records.append(
        record(http(with_probe("legacymark", "café déjà vu").encode("cp1252")), uri="http://legacy.example/")
    )
    bogus = html_page(f"metamark {PROBE}", head='<meta charset="bogus-8859">').encode()
    records.append(record(http(bogus, "Content-Type: text/html"), uri="http://meta.example/"))

    path = write_warc(tmp_path / "charsets.warc.gz", records)
    documents = materialise(
        extract_pages(fetch_crawl(external_crawl("web", [str(path)], version="1"))), prefix=str(tmp_path / "store")
    )

    texts = {document.url: document.text for document in iterate_documents(documents)}
    assert len(texts) == 10
    legacy = texts.pop("http://legacy.example/")
    assert "café déjà vu" in legacy
    assert all(PROBE in text for text in texts.values())
    assert documents.read_json("extraction.json")["flags"]["charset_label_wrong"] >= 6
