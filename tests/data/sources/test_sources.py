"""Documents from files of common formats: none is lost, and a bad record costs one counter."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from marin.data.documents.io import iterate_documents
from marin.data.sources.config import HubDataset, SourceConfig
from marin.data.sources.ready import common_crawl, files_of, hugging_face, text_folder, wikipedia
from marin.execution import External, StepError
from tests.data.sources.reading import read, texts

ROWS = [
    {"id": "a", "text": "The first text.", "url": "http://x.invalid/a", "stars": 3},
    {"id": "b", "text": "The second text.", "url": "http://x.invalid/b", "stars": 4},
    {"id": "c", "text": "The third text.", "url": "http://x.invalid/c", "stars": 5},
]


def written(folder: Path, format: str) -> Path:
    path = folder / f"rows.{format}"
    if format == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    elif format == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    else:
        with path.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, list(ROWS[0]))
            writer.writeheader()
            writer.writerows(ROWS)
    return path


@pytest.mark.parametrize("format", ["jsonl", "parquet", "csv"])
def test_a_file_of_every_format_gives_the_same_documents_wherever_it_lies(tmp_path: Path, format: Any) -> None:
    path = written(tmp_path, format)
    config = files_of("books", [str(path)], format=format, version="1", licence="CC0-1.0")
    documents, flow = read(tmp_path / "p", config)
    assert texts(documents) == {row["url"]: row["text"] for row in ROWS}
    first = next(iterate_documents(documents))
    metadata = json.loads(first.metadata)
    assert (metadata["file"], metadata["licence"], str(metadata["stars"])) == (path.name, "CC0-1.0", "3")
    assert (flow["read"], flow["dropped"]) == (3, {})
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    again, _ = read(
        tmp_path / "q", files_of("books", [str(path.rename(moved / path.name))], format=format, version="1")
    )
    assert [one.id for one in iterate_documents(again)] == [one.id for one in iterate_documents(documents)]


def test_ids_come_from_the_url_or_else_the_id_or_else_the_place(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(
        gzip.compress(b'{"id": 7, "text": "Same text."}\n{"id": 8, "text": "Same text."}\n{"text": "Same text."}\n')
    )
    documents, _ = read(tmp_path / "p", files_of("books", [str(path)], format="jsonl", version="1"))
    ids = [document.id for document in iterate_documents(documents)]
    assert len(set(ids)) == 3


def test_a_bad_line_costs_one_record_and_its_place_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    lines = [
        json.dumps(ROWS[0]).encode(),
        b'{"text": "broken',
        b"[1, 2]",
        b"",
        json.dumps({"url": "http://x.invalid/none"}).encode(),
        json.dumps({"text": 17}).encode(),
        json.dumps({"text": " \n "}).encode(),
        b'{"text": "half a surrogate \\ud800 is replaced, %s", "url": "http://x.invalid/s", "n": NaN}' % (b"on " * 50),
        b'{"text": "' + b"\xff" * 40 + b'"}',
        json.dumps({"text": "\x01\x02\x03" * 9}).encode(),
        json.dumps(ROWS[0]).encode(),
        json.dumps(ROWS[1]).encode()[:-5],
    ]
    path.write_bytes(b"\n".join(lines))
    documents, flow = read(tmp_path / "p", files_of("books", [str(path)], format="jsonl", version="1"))
    assert texts(documents) == {
        "http://x.invalid/a": "The first text.",
        "http://x.invalid/s": "half a surrogate \ufffd is replaced, " + "on " * 50,
    }
    assert flow["dropped"] == {
        "broken_line": 2,
        "no_object": 1,
        "no_text": 1,
        "wrong_type": 1,
        "empty_text": 2,
        "undecodable": 1,
        "same_record": 1,
    }
    starts = [sum(len(one) + 1 for one in lines[:number]) for number in range(len(lines))]
    assert documents.read_json("reading.json")["places"] == {
        reason: [f"rows.jsonl:{starts[number]}" for number in numbers]
        for reason, numbers in {
            "broken_line": [1, 11],
            "no_object": [2],
            "no_text": [4],
            "wrong_type": [5],
            "empty_text": [6, 9],
            "undecodable": [8],
            "same_record": [10],
        }.items()
    }


def test_a_text_longer_than_the_csv_module_allows_and_bytes_that_are_no_utf8_are_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    long = "word " * 100_000
    path.write_bytes(
        b"\xef\xbb\xbftext,url\n"
        + long.encode()
        + b",http://x.invalid/long\nCaf\xe9 "
        + b"and more text " * 20
        + b",http://x.invalid/latin\n"
    )
    documents, _ = read(tmp_path / "p", files_of("books", [str(path)], format="csv", version="1"))
    found = texts(documents)
    assert len(found["http://x.invalid/long"]) >= len(long) - 1
    assert found["http://x.invalid/latin"].startswith("Caf\ufffd and")


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_a_missing_column_is_named_with_those_that_are_there(tmp_path: Path, format: Any) -> None:
    path = written(tmp_path, format)
    with pytest.raises(StepError, match=r"rows\.\w+, row 0: there is no column 'body'; it has id, text, url, stars"):
        read(tmp_path / "p", files_of("books", [str(path)], format=format, version="1", text_field="body"))


def test_a_file_that_is_none_and_a_source_without_documents_end_the_step_with_their_names(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"no parquet")
    with pytest.raises(StepError, match=r"rows\.parquet cannot be read as parquet"):
        read(tmp_path / "p", files_of("books", [str(path)], format="parquet", version="1"))
    lines = tmp_path / "rows.jsonl"
    lines.write_text('{"body": "text"}\n' * 3)
    with pytest.raises(StepError, match="3 records of source 'books': no_text 3; is text_field 'text' right"):
        read(tmp_path / "q", files_of("books", [str(lines)], format="jsonl", version="1"))


def test_a_folder_of_texts_gives_a_document_for_each_file_whatever_the_task_size(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    (folder / "sub").mkdir(parents=True)
    for name in ("one", "two", "sub/one"):
        (folder / f"{name}.txt").write_text(f"What {name} says.\r\nIn two lines.")
    (folder / "empty.txt").write_text("")
    one, flow = read(tmp_path / "p", text_folder("notes", str(folder), version="1"))
    assert sorted(one.text for one in iterate_documents(one)) == [
        "What one says.\nIn two lines.",
        "What sub/one says.\nIn two lines.",
        "What two says.\nIn two lines.",
    ]
    assert flow["dropped"] == {"no_text": 1}
    assert len(one.shards) == 1
    small = SourceConfig("notes", (External(str(folder), "1/texts"),), "text", task_bytes=1)
    many, _ = read(tmp_path / "q", small)
    assert len(many.shards) == 3
    assert {one.id for one in iterate_documents(many)} == {two.id for two in iterate_documents(one)}


DUMP = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/">
<siteinfo><base>https://en.wikipedia.org/wiki/Main_Page</base></siteinfo>
<page><title>River mill</title><ns>0</ns><id>12</id><revision><id>99</id><timestamp>2026-01-02T03:04:05Z</timestamp>
<text>{{Infobox|name=Mill}}A '''mill''' on a [[river|stream]].&lt;ref&gt;A book.&lt;/ref&gt;

== Use ==
* [[Flour]] was ground.</text></revision></page>
<page><title>Talk:River mill</title><ns>1</ns><id>13</id><revision><id>98</id><text>Hello.</text></revision></page>
<page><title>Mill (river)</title><ns>0</ns><id>14</id><redirect title="River mill"/><revision><id>97</id>
<text>#REDIRECT [[River mill]]</text></revision></page>
</mediawiki>
"""


def test_articles_of_a_wikipedia_dump_are_prose_with_their_address(tmp_path: Path) -> None:
    path = tmp_path / "enwiki-pages-articles.xml.bz2"
    path.write_bytes(bz2.compress(DUMP.encode()))
    documents, flow = read(tmp_path / "p", files_of("wiki", [str(path)], format="wikipedia", version="1"))
    (page,) = iterate_documents(documents)
    assert page.text == "A mill on a stream.\n\nUse\n- Flour was ground."
    assert page.url == "https://en.wikipedia.org/wiki/River_mill"
    metadata = json.loads(page.metadata)
    assert (metadata["title"], metadata["page"], metadata["date"]) == ("River mill", "12", "2026-01-02T03:04:05Z")
    assert flow["dropped"] == {"other_namespace": 1, "redirect": 1}


def test_a_dataset_is_read_in_parts_and_rows_without_text_are_counted(tmp_path: Path) -> None:
    import datasets

    rows = [{"text": f"Text {n}.", "n": n} for n in range(10)] + [{"text": "", "n": 10}]
    datasets.Dataset.from_list(rows).save_to_disk(str(tmp_path / "saved"))
    config = SourceConfig(
        "set", dataset=HubDataset("org/set", "abc123", parts=3, saved_in=str(tmp_path / "saved")), licence="MIT"
    )
    documents, flow = read(tmp_path / "p", config)
    assert sorted(one.text for one in iterate_documents(documents)) == sorted(f"Text {n}." for n in range(10))
    assert (flow["read"], flow["dropped"]) == (11, {"no_text": 1})
    assert len({one.id for one in iterate_documents(documents)}) == 10


def test_ready_sources_name_what_is_published() -> None:
    (warcs,) = common_crawl("CC-MAIN-2026-30").warcs
    assert warcs.path == "https://data.commoncrawl.org/crawl-data/CC-MAIN-2026-30/warc.paths.gz"
    assert common_crawl("CC-MAIN-2026-30", root="s3://commoncrawl").warcs[0].version == warcs.version
    (dump,) = wikipedia("20261101", language="zh-yue").files
    assert dump.path == (
        "https://dumps.wikimedia.org/zh_yuewiki/20261101/zh_yuewiki-20261101-pages-articles-multistream.xml.bz2"
    )
    assert hugging_face("web", "org/set", revision="abc").dataset == HubDataset("org/set", "abc")
    assert text_folder("notes", "/data/notes/", version="2").files[0].version == "2/notes"


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: SourceConfig("Books", (External("a", "1"),)), "source"),
        (lambda: SourceConfig("books"), "neither"),
        (lambda: SourceConfig("books", (External("a", "1"),), dataset=HubDataset("a", "b")), "both"),
        (lambda: SourceConfig("books", (External("a", "1"),), "pdf"), "format"),  # type: ignore[arg-type]
        (lambda: SourceConfig("books", (External("a", "1"),), text_field=""), "text_field"),
        (lambda: HubDataset("a", ""), "revision"),
        (lambda: HubDataset("a", "b", parts=0), "parts"),
    ],
)
def test_wrong_settings_are_refused_by_name(make: Any, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        make()
