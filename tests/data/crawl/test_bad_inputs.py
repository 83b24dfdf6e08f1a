"""Records that are odd in ways which no other test of this folder builds: each ends in the counter it belongs to."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from marin.data.crawl.config import external_crawl
from marin.data.crawl.steps import extract_pages, fetch_crawl
from marin.data.dedup.steps import deduplicate, deduplicate_across
from marin.data.documents.artifacts import Documents
from marin.data.documents.io import iterate_documents
from marin.data.filtering.steps import annotate
from marin.execution import materialise
from tests.data.crawl.warcs import html_page, http, page_record, record, warcinfo, write_warc
from tests.data.dedup.runs import EVERYTHING_PASSES


def extracted(tmp_path: Path, *paths: Path) -> tuple[Documents, dict[str, int]]:
    """The documents, and what was dropped."""
    crawl = fetch_crawl(external_crawl("web", [str(path) for path in paths], version="1"))
    documents = materialise(extract_pages(crawl), prefix=str(tmp_path / "store"))
    flow = documents.read_json("extraction.json")["flow"]
    assert flow["read"] == flow["kept"] + sum(flow["dropped"].values())
    return documents, flow["dropped"]


def test_a_record_of_no_bytes_and_an_answer_without_content_are_empty_payloads(tmp_path: Path) -> None:
    empty = [
        record(b""),
        record(b"\r\n"),
        record(http(b"", status="204 No Content")),
        record(http(b" \r\n\r\n ")),
        record(http(b"", "Content-Type: text/html", "Content-Length: 0")),
    ]
    documents, dropped = extracted(tmp_path, write_warc(tmp_path / "a.warc.gz", [*empty, page_record("good")]))
    assert documents.rows == 1
    assert dropped == {"empty_payload": len(empty)}


def test_a_record_that_tells_nothing_of_itself_has_an_id_of_its_place(tmp_path: Path) -> None:
    bare = []
    for _ in range(2):
        head, _, block = page_record("bare").partition(b"\r\n\r\n")
        lines = [
            line
            for line in head.split(b"\r\n")
            if line.split(b":")[0] in (b"WARC/1.0", b"WARC-Type", b"Content-Length")
        ]
        bare.append(b"\r\n".join(lines) + b"\r\n\r\n" + block)
    documents, dropped = extracted(tmp_path, write_warc(tmp_path / "a.warc.gz", bare))
    found = list(iterate_documents(documents))
    assert [one.url for one in found] == [None, None]
    assert len({one.id for one in found}) == 2
    assert dropped == {}


def test_a_page_with_too_many_undecodable_bytes_is_dropped_and_one_with_a_few_keeps_its_letters(tmp_path: Path) -> None:
    text = "Der Müller saß vor der Mühle und zählte die Säcke. " * 30
    few = html_page("few").replace("</article>", f"<p>{text}</p></article>").encode().replace(b"<h1>", b"<h1>\xff", 1)
    many = b"<html><body><p>" + b"\x81\x8d\x8f \x90\x9d words " * 300 + b"</p></body></html>"
    records = [
        record(http(few), uri="http://few.example/"),
        record(http(many, "Content-Type: text/html; charset=utf-8"), uri="http://many.example/"),
    ]
    documents, dropped = extracted(tmp_path, write_warc(tmp_path / "a.warc.gz", records))
    (page,) = iterate_documents(documents)
    assert page.text.count("Müller saß") == 30
    assert json.loads(page.metadata)["charset_from"] == "replaced"
    assert sum(dropped.values()) == 1
    assert dropped.keys() <= {"undecodable", "binary"}


def test_a_file_that_is_gzip_as_a_whole_is_read_and_said_to_be_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_warc(tmp_path / "a.warc.gz", [warcinfo(), *map(page_record, ("one", "two"))], per_record=False)
    with caplog.at_level(logging.WARNING):
        documents, _ = extracted(tmp_path, path)
    assert documents.rows == 2
    assert documents.read_json("extraction.json")["files"][0]["one_member"]
    assert "gzip as a whole" in caplog.text


def test_a_page_that_was_archived_twice_is_kept_once_and_one_that_changed_has_two_ids(tmp_path: Path) -> None:
    first, later = page_record("page"), page_record("page", paragraphs=9)
    paths = [write_warc(tmp_path / f"{n}.warc.gz", items) for n, items in enumerate([[first, first], [first, later]])]
    crawl = fetch_crawl(external_crawl("web", [str(path) for path in paths], version="1"))
    pages = extract_pages(crawl)
    documents = list(iterate_documents(materialise(pages, prefix=str(tmp_path / "store"))))
    assert len(documents) == 4
    assert len({one.id for one in documents}) == 2
    signals = annotate(pages, EVERYTHING_PASSES)
    within = deduplicate(pages, signals)
    duplicates = materialise(deduplicate_across([pages], [signals], [within]), prefix=str(tmp_path / "store"))
    rows: list[dict[str, Any]] = []
    for shard in duplicates.shards:
        rows += pq.read_table(duplicates.local(shard.name)).to_pylist()
    kept = [row["id"] for row in rows if row["reason"] is None]
    assert len(kept) == len(set(kept)) <= 2
    assert sum(row["reason"] is not None for row in rows) == 4 - len(kept)


@pytest.mark.parametrize("length", [-500, -1, 5, 500, 3000, 10**7, 10**9])
@pytest.mark.parametrize("packed", ["plain", "gzip"])
def test_a_record_whose_length_is_wrong_costs_itself_only(tmp_path: Path, packed: str, length: int) -> None:
    block = http(html_page("wrong").encode())
    records = [page_record("before"), record(block, uri="http://wrong.example/", length=len(block) + length)]
    records.append(page_record("after"))
    path = tmp_path / "a.warc"
    if packed == "plain":
        path.write_bytes(b"".join(records))
    else:
        write_warc(path, records)
    documents, dropped = extracted(tmp_path, path)
    assert [one.url for one in iterate_documents(documents)] == ["http://before.example/", "http://after.example/"]
    assert dropped == {"damaged": 1}
