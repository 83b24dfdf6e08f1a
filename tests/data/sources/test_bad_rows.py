"""Files that are cut, damaged, huge or odd: a record is lost at most, and never without a count."""

from __future__ import annotations

import bz2
import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from marin.data.documents.io import iterate_documents
from marin.data.sources.config import SourceConfig
from marin.data.sources.ready import files_of, text_folder
from marin.execution import External, StepError
from tests.data.sources.reading import read, texts


def source(path: Path, format: Any = "jsonl", **settings: Any) -> SourceConfig:
    return SourceConfig("books", (External(str(path), "1"),), format, **settings)


def line(number: int) -> bytes:
    return json.dumps({"text": f"Text {number} of a book that nobody wrote.", "id": number}).encode() + b"\n"


LINES = b"".join(map(line, range(3000)))


# --- packed files ---


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, zstandard.ZstdCompressor().compress])
def test_a_packed_file_of_several_parts_is_read_to_its_end_whatever_its_name(tmp_path: Path, pack: Any) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(b"".join(pack(line(number)) for number in range(20)))
    documents, flow = read(tmp_path / "p", source(path))
    assert documents.rows == 20
    assert flow["dropped"] == {}


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_a_cut_file_keeps_what_lies_before_the_cut_and_is_named(tmp_path: Path, pack: Any) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(pack(LINES) + pack(LINES)[:-100])
    documents, flow = read(tmp_path / "p", source(path, id_field="no"))
    assert documents.rows >= 3000
    assert flow["dropped"] == {"truncated": 1}
    told = documents.read_json("reading.json")
    (unread,) = told["files_unread"]
    assert (told["files"], unread["name"], unread["reason"]) == (1, "rows.jsonl.gz", "truncated")
    assert unread["records"] == told["records"] - 1 == flow["read"] - 1
    begin = int(unread["last"].removeprefix("rows.jsonl.gz:"))
    assert (LINES + LINES)[begin - 1 : begin + 10] == b'\n{"text": "'
    with pytest.raises(StepError, match=r"rows\.jsonl\.gz of source 'books' is truncated behind .* source\.strict"):
        read(tmp_path / "q", source(path, strict=True))


def test_a_damaged_file_does_not_end_the_task_that_reads_others_too(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(LINES * 10))
    packed[len(packed) // 2] ^= 0xFF
    (tmp_path / "a.jsonl.gz").write_bytes(bytes(packed))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b"".join(map(line, range(5000, 5010)))))
    documents, flow = read(tmp_path / "p", source(tmp_path / "*.gz"))
    found = {json.loads(one.metadata)["id"] for one in iterate_documents(documents)}
    assert {1, *range(5000, 5010)} < found
    assert flow["dropped"]["damaged"] == 1


# --- lines ---


def test_a_line_longer_than_allowed_is_passed_over_and_the_next_one_is_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(line(1) + json.dumps({"text": "x" * 5_000_000}).encode() + b"\n" + line(2))
    documents, flow = read(tmp_path / "p", source(path, longest_record=1_000_000))
    assert documents.rows == 2
    assert flow["dropped"] == {"too_long": 1}
    assert documents.read_json("reading.json")["places"] == {"too_long": [f"rows.jsonl:{len(line(1))}"]}


def test_numbers_of_any_size_and_values_of_any_depth_cost_no_record(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    deep = b"[" * 400 + b"]" * 400
    path.write_bytes(
        b'{"text": "One.", "n": ' + b"9" * 6000 + b', "m": 12}\n'
        b'{"text": "Two.", "n": -Infinity, "m": NaN, "k": 18446744073709551616}\n'
        b'{"text": "Three.", "deep": ' + deep + b"}\n"
        b'{"text": "Four.", "deep": ' + b"[" * 100_000 + b"}\n"
    )
    documents, flow = read(tmp_path / "p", source(path))
    metadata = {one.text: json.loads(one.metadata) for one in iterate_documents(documents)}
    assert metadata["One."]["n"] == "9" * 6000
    assert metadata["One."]["m"] == 12
    assert (metadata["Two."]["n"], metadata["Two."]["m"]) == ("-inf", "nan")
    assert metadata["Two."]["k"] == "18446744073709551616"
    assert "…" in json.dumps(metadata["Three."]["deep"], ensure_ascii=False)
    assert flow["dropped"] == {"broken_line": 1}


def test_what_is_taken_out_of_texts_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    long = " and more words" * 40
    path.write_bytes(
        b'{"text": "A bell \\u0007 rings%s"}\n' % long.encode()
        + b'{"text": "Half a pair \\ud83d%s"}\n' % long.encode()
        + b'{"text": "No letter \xff%s"}\n' % long.encode()
    )
    documents, _ = read(tmp_path / "p", source(path))
    assert documents.rows == 3
    assert documents.read_json("reading.json")["mended"] == {"controls": 1, "surrogates": 1, "undecodable_bytes": 1}


# --- CSV ---


def csv_source(tmp_path: Path, content: str) -> tuple[list[str], dict[str, int]]:
    path = tmp_path / "rows.csv"
    path.write_text(content, newline="")
    documents, flow = read(tmp_path / "p", source(path, "csv"))
    return [one.text for one in iterate_documents(documents)], flow["dropped"]


def test_a_quote_that_nothing_closes_costs_its_row_and_not_the_rest_of_the_file(tmp_path: Path) -> None:
    rows = "".join(f"{number},text number {number}\n" for number in range(500))
    found, dropped = csv_source(tmp_path, f'id,text\n1,"in\nquotes"\n2,"open\n{rows}')
    assert found == ["in\nquotes", *(f"text number {number}" for number in range(500))]
    assert dropped == {"broken_line": 1}


@pytest.mark.parametrize("end", ['3,"the text is c', "3"])
def test_a_last_row_that_is_cut_is_lost_and_counted(tmp_path: Path, end: str) -> None:
    found, dropped = csv_source(tmp_path, f"id,text\n1,one\n2,two\n{end}")
    assert found == ["one", "two"]
    assert dropped == {"broken_line": 1}


def test_a_last_row_without_a_line_break_and_rows_of_other_lengths_are_whole(tmp_path: Path) -> None:
    found, dropped = csv_source(tmp_path, "text,id,url\r\none,1\r\ntwo,2,http://x.invalid/,more,still\r\n\r\nthree,3,u")
    assert found == ["one", "two", "three"]
    assert dropped == {}


# --- parquet ---


def test_files_of_different_schemas_become_documents_of_one(tmp_path: Path) -> None:
    tables = [
        pa.table({"text": ["a text"], "stars": [1]}),
        pa.table({"stars": [1.5], "text": pa.array(["another text"], pa.large_string()), "extra": [["x"]]}),
        pa.table({"text": pa.array([7, None], pa.int64())}),
        pa.table({"text": pa.array(["a dictionary"]).dictionary_encode()}),
    ]
    for number, table in enumerate(tables):
        pq.write_table(table, tmp_path / f"{number}.parquet")
    documents, flow = read(tmp_path / "p", source(tmp_path / "*.parquet", "parquet"))
    assert [one.text for one in iterate_documents(documents)] == ["a text", "another text", "a dictionary"]
    assert flow["dropped"] == {"no_text": 1, "wrong_type": 1}
    assert json.loads(list(iterate_documents(documents))[1].metadata)["extra"] == ["x"]


def test_a_file_without_the_column_among_others_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a text"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"body": ["a text"]}), tmp_path / "b.parquet")
    with pytest.raises(StepError, match=r"b\.parquet, row 0: there is no column 'text'; it has body"):
        read(tmp_path / "p", source(tmp_path / "*.parquet", "parquet"))


# --- text folders ---


def test_texts_of_other_codecs_are_read_and_a_few_bad_bytes_spoil_no_letter(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    text = "Der Müller saß vor der Mühle und zählte die Säcke, während das Öl im Fässchen schwappte. " * 20
    (folder / "latin.txt").write_bytes(text.encode("latin-1"))
    (folder / "mark.txt").write_bytes(b"\xef\xbb\xbf" + text.encode())
    (folder / "wide.txt").write_bytes(text.encode("utf-16"))
    (folder / "bad.txt").write_bytes(text.encode() + b"\xff\xfe" + text.encode())
    (folder / "binary.txt").write_bytes(bytes(range(256)) * 20)
    documents, flow = read(tmp_path / "p", text_folder("notes", str(folder), version="1"))
    found = {json.loads(one.metadata)["file"]: one.text for one in iterate_documents(documents)}
    assert found["latin.txt"] == found["mark.txt"] == found["wide.txt"] == text
    assert found["bad.txt"] in (f"{text}\ufffd\ufffd{text}", f"{text}\ufffd{text}")
    assert sum(flow["dropped"].values()) == 1


READ = """
import re, sys
import datatrove.pipeline.readers, pyarrow.parquet
from marin.data.sources.ready import text_folder
from marin.data.sources.steps import read_source
from marin.execution import materialise

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) / 1000

before = peak()
documents = materialise(read_source(text_folder("notes", sys.argv[1], version="1")), prefix=sys.argv[2])
print(documents.rows, documents.text_bytes, int(peak() - before))
"""


def test_a_large_text_is_one_document_in_a_few_times_its_size_and_a_larger_one_is_counted(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "large.txt").write_bytes(b"words of a text that repeats\n" * 700_000)
    command = [sys.executable, "-c", READ, str(folder), str(tmp_path / "p")]
    rows, text_bytes, megabytes = map(int, subprocess.run(command, capture_output=True, check=True).stdout.split())
    assert (rows, text_bytes) == (1, 20_300_000)
    assert megabytes < 15 * 20.3
    (folder / "small.txt").write_bytes(b"a few words")
    config = SourceConfig("notes", (External(str(folder), "1"),), "text", longest_record=1_000_000)
    documents, flow = read(tmp_path / "q", config)
    assert (documents.rows, flow["dropped"]) == (1, {"too_long": 1})


# --- files and tasks ---


def test_thousands_of_tiny_files_are_one_task_and_empty_ones_leave_no_shard(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    for number in range(1000):
        (folder / f"{number:04d}.jsonl").write_bytes(line(number) if number % 2 else b"")
    documents, _ = read(tmp_path / "p", source(folder))
    assert (documents.rows, len(documents.shards)) == (500, 1)


def test_a_task_without_documents_leaves_no_shard(tmp_path: Path) -> None:
    for number, content in enumerate([line(1), b"\n\n", b'{"text": ""}\n', line(2)]):
        (tmp_path / f"{number}.jsonl").write_bytes(content)
    documents, flow = read(tmp_path / "p", source(tmp_path / "*.jsonl", task_bytes=1))
    assert [shard.rows for shard in documents.shards] == [1, 1]
    assert flow["dropped"] == {"no_text": 1}


def test_the_same_documents_come_out_in_any_packing_and_task_size(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for number in range(7):
        rows = b"".join(map(line, range(number * 10, number * 10 + 10)))
        (tmp_path / "a" / f"{number}.jsonl").write_bytes(rows)
        (tmp_path / "b" / f"{number}.jsonl").write_bytes(gzip.compress(rows))
    whole, _ = read(tmp_path / "p", files_of("books", [str(tmp_path / "a")], format="jsonl", version="1"))
    for task_bytes in (1, 1000, 3000):
        other, _ = read(tmp_path / f"q{task_bytes}", source(tmp_path / "b", task_bytes=task_bytes))
        assert [one.id for one in iterate_documents(other)] == [one.id for one in iterate_documents(whole)]
    assert texts(whole)
