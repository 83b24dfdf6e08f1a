"""crawl-06: a page that the extractor cannot bear costs itself only."""

import time

from marin.data.crawl.config import ExtractConfig, external_crawl
from marin.data.crawl.steps import extract_pages, fetch_crawl
from marin.data.documents.io import iterate_documents
from marin.execution import materialise
from tests.data.crawl.warcs import html_page, http, record, warcinfo, write_warc


def test_giant_and_deep_pages_are_counted_and_the_next_page_comes_out(tmp_path):
    rows = "".join(f"<tr><td>{n}</td><td>cell {n}</td></tr>" for n in range(60_000))
    pages = [
        f"<html><body><h1>bigtablemark</h1><table>{rows}</table></body></html>",
        f"<html><body><h1>deepmark</h1>{'<div>' * 30_000}text{'</div>' * 30_000}</body></html>",
        f'<html><body><p data-x="{"ab " * 1_000_000}">attrmark</p></body></html>',
        html_page("aftermark"),
    ]
    records = [record(http(page.encode()), uri=f"http://slow{n}.example/") for n, page in enumerate(pages)]
    path = write_warc(tmp_path / "slow.warc.gz", [warcinfo(), *records])

    started = time.monotonic()
    documents = materialise(
        extract_pages(fetch_crawl(external_crawl("web", [str(path)], version="1")), ExtractConfig(page_seconds=5.0)),
        prefix=str(tmp_path / "store"),
    )
    assert time.monotonic() - started < 60

    flow = documents.read_json("extraction.json")["flow"]
    assert flow["kept"] + sum(count for reason, count in flow["dropped"].items() if reason != "warcinfo") == 4
    assert any("aftermark" in document.text for document in iterate_documents(documents))
