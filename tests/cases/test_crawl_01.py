"""crawl-01: a gzip WARC that was cut off gives its whole pages and says that it was cut."""

import gzip

import pytest

from marin.data.crawl.config import ExtractConfig, external_crawl
from marin.data.crawl.steps import extract_pages, fetch_crawl
from marin.data.documents.io import iterate_documents
from marin.execution import StepError, materialise
from tests.data.crawl.warcs import page_record, warcinfo, write_warc

MARKERS = ("quillberry", "marshlight", "copperfen", "tallowick", "sandmere")


def _cut(tmp_path, cut):
    path = write_warc(tmp_path / "crawl.warc.gz", [warcinfo(), *map(page_record, MARKERS)])
    data = path.read_bytes()
    last = len(gzip.compress(page_record(MARKERS[-1]), mtime=0))
    kept = {
        "intact": len(data),
        "body": len(data) - last // 2,
        "header": len(data) - last + 5,
        "trailer": len(data) - 4,
    }
    path.write_bytes(data[: kept[cut]])
    return path


def _extract(tmp_path, path, **config):
    crawl = fetch_crawl(external_crawl("web", [str(path)], version="1"))
    return materialise(extract_pages(crawl, ExtractConfig(**config)), prefix=str(tmp_path / "store"))


@pytest.mark.parametrize("cut", ["body", "header", "trailer"])
def test_a_cut_file_keeps_its_whole_pages_and_is_marked(tmp_path, cut):
    documents = _extract(tmp_path, _cut(tmp_path, cut))
    texts = [document.text for document in iterate_documents(documents)]
    assert [next(marker for marker in MARKERS if marker in text) for text in texts] == list(MARKERS[:4])
    report = documents.read_json("extraction.json")
    assert [file["truncated"] for file in report["files"]] == [True]
    assert report["flow"] == {"unit": "records", "read": 6, "kept": 4, "dropped": {"truncated": 1, "warcinfo": 1}}


def test_the_intact_file_has_all_pages_and_no_mark(tmp_path):
    documents = _extract(tmp_path, _cut(tmp_path, "intact"))
    assert documents.rows == 5
    assert [file["truncated"] for file in documents.read_json("extraction.json")["files"]] == [False]


def test_strict_turns_the_mark_into_a_failure(tmp_path):
    with pytest.raises(StepError, match="truncated"):
        _extract(tmp_path, _cut(tmp_path, "body"), strict=True)
