"""Where in its file a page lies: told in the metadata, and by `marin documents find`."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
import zstandard

from marin.cli.main import main
from marin.data.crawl.config import external_crawl
from marin.data.crawl.steps import extract_pages, fetch_crawl
from marin.data.documents.io import iterate_documents
from marin.execution import materialise
from tests.data.crawl.warcs import page_record, warcinfo

NAMES = [f"page{n}" for n in range(5)]
RECORDS = [warcinfo(), *(page_record(name) for name in NAMES)]


def offsets(folder: Path, file: Path) -> dict[str, Any]:
    """The offset that each page's metadata tells."""
    pages = extract_pages(fetch_crawl(external_crawl("web", [str(file)], version="1")))
    documents = materialise(pages, prefix=str(folder))
    told = {one.url or "": json.loads(one.metadata) for one in iterate_documents(documents)}
    assert {one["warc"] for one in told.values()} == {file.name}
    return {url.removeprefix("http://").split(".")[0]: one.get("offset") for url, one in told.items()}


def test_a_plain_file_is_cut_at_the_offset_into_the_record(tmp_path: Path) -> None:
    file = tmp_path / "web.warc"
    file.write_bytes(b"".join(RECORDS))
    found = offsets(tmp_path / "p", file)
    for name, record in zip(NAMES, RECORDS[1:], strict=True):
        assert file.read_bytes()[found[name] :].startswith(record)


def test_a_gzip_member_and_a_zstd_frame_begin_at_the_offset(tmp_path: Path) -> None:
    gz, zst = tmp_path / "web.warc.gz", tmp_path / "web.warc.zst"
    gz.write_bytes(b"".join(gzip.compress(record, mtime=0) for record in RECORDS))
    zst.write_bytes(b"".join(zstandard.compress(record) for record in RECORDS))
    of_gzip, of_zstd = offsets(tmp_path / "p1", gz), offsets(tmp_path / "p2", zst)
    for name, record in zip(NAMES, RECORDS[1:], strict=True):
        assert zlib.decompressobj(31).decompress(gz.read_bytes()[of_gzip[name] :]) == record
        assert zstandard.ZstdDecompressor().decompressobj().decompress(zst.read_bytes()[of_zstd[name] :]) == record


def test_a_file_that_is_one_gzip_member_as_a_whole_has_no_places_to_read_from(tmp_path: Path) -> None:
    file = tmp_path / "web.warc.gz"
    file.write_bytes(gzip.compress(b"".join(RECORDS), mtime=0))
    assert set(offsets(tmp_path / "p", file).values()) == {None}


def test_find_prints_file_and_byte(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "web.warc.gz"
    file.write_bytes(b"".join(gzip.compress(record, mtime=0) for record in RECORDS))
    place = offsets(tmp_path / "p", file)["page3"]
    with pytest.raises(SystemExit) as stop:
        main(["documents", "find", "http://page3.example/", "--prefix", str(tmp_path / "p")])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert f"{file}, from byte {place}\n" in shown
    assert sum(map(len, map(gzip.compress, RECORDS[:4]))) == place
