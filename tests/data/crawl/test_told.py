"""What people are told of WARC files that are cut or damaged."""

from __future__ import annotations

import json
from pathlib import Path

from marin.data.crawl.config import ExtractConfig, external_crawl
from marin.data.crawl.steps import extract_pages, fetch_crawl
from marin.execution import materialise
from tests.data.crawl.warcs import page_record, write_warc


def remarks(folder: Path, *paths: Path) -> list[str]:
    crawl = fetch_crawl(external_crawl("web", [str(path) for path in paths], version="1"))
    materialise(extract_pages(crawl, ExtractConfig()), prefix=str(folder))
    (record,) = folder.glob("_steps/documents.pages-*.json")
    found: list[str] = json.loads(record.read_text()).get("remarks", [])
    return found


def test_files_that_are_cut_or_damaged_are_named_and_whole_ones_are_not(tmp_path: Path) -> None:
    records = [page_record(f"page{number}") for number in range(6)]
    whole = write_warc(tmp_path / "a.warc.gz", records)
    cut = tmp_path / "b.warc"
    cut.write_bytes(b"".join(records)[:-40])
    damaged = tmp_path / "c.warc"
    damaged.write_bytes(records[0] + records[1].replace(b"WARC/1.", b"XXXX/1.", 1) + b"".join(records[2:]))
    assert remarks(tmp_path / "whole", whole) == []
    (remark,) = remarks(tmp_path / "all", whole, cut, damaged)
    assert remark.startswith("2 of 3 WARC files cut or damaged: ")
    assert "b.warc (truncated in 6 records)" in remark
    assert "c.warc (1 damaged stretches in 6 records)" in remark
