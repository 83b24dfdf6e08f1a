"""What people are told of a source that was not read whole, or that gave nothing."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from marin.cli.main import main
from marin.data.sources.account import PLACES_KEPT
from marin.data.sources.config import SourceConfig
from marin.data.sources.steps import read_source
from marin.execution import External, StepError, make_plan
from marin.execution.running.console import PlainConsole
from marin.execution.running.inline import InlineBackend
from marin.execution.running.runner import Runner, RunOptions
from marin.storage import open_store
from tests.data.sources.reading import read
from tests.data.sources.test_bad_rows import LINES, line, source


def lines_of(prefix: Path, config: SourceConfig) -> str:
    """The line of the step on a console without a terminal."""
    store, stream = open_store(str(prefix)), io.StringIO()
    plan = make_plan([read_source(config)], store)
    options = RunOptions(max_concurrent=1)
    assert Runner(store, plan, options, InlineBackend, observer=PlainConsole(stream)).run().succeeded
    (told,) = [one for one in stream.getvalue().splitlines() if "✓" in one]
    return told


def test_a_cut_file_is_told_on_the_console_in_show_and_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = gzip.compress(LINES)
    (tmp_path / "a.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "b.jsonl").write_bytes(line(7000))
    told = lines_of(tmp_path / "p", source(tmp_path / "*.jsonl*"))
    remark = told.partition("! ")[2]
    assert remark.startswith("1 of 2 files cut, what followed is lost: a.jsonl.gz (truncated behind ")
    for command in ("show", "status"):
        words = [command, *(["documents/source"] if command == "show" else []), "--prefix", str(tmp_path / "p")]
        with pytest.raises(SystemExit):
            main(words)
        assert remark in capsys.readouterr().out


def test_damaged_files_and_files_of_another_format_are_told_together(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(LINES * 10))
    packed[len(packed) // 2] ^= 0xFF
    (tmp_path / "a.jsonl").write_bytes(bytes(packed))
    told = lines_of(tmp_path / "p", source(tmp_path / "*.jsonl"))
    assert "1 of 1 files damaged, what followed is lost: a.jsonl (damaged behind " in told
    pq.write_table(pa.table({"text": ["a text"]}), tmp_path / "b.jsonl")
    told = lines_of(tmp_path / "q", source(tmp_path / "*.jsonl"))
    assert "2 of 2 files not read to the end" in told and "b.jsonl (other_format behind 0 records)" in told
    with pytest.raises(StepError, match=r"b\.jsonl of source 'books' is of another format"):
        read(tmp_path / "r", source(tmp_path / "b.jsonl", strict=True))


def test_a_whole_source_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(line(1))
    assert "!" not in lines_of(tmp_path / "p", source(tmp_path / "a.jsonl"))


def test_places_are_kept_for_every_reason_up_to_a_bound_over_all_tasks(tmp_path: Path) -> None:
    for number in range(3):
        rows = [{"text": f"Text {number}."}, *[{"other": 1}] * 12, *[{"text": [1]}] * 2]
        (tmp_path / f"{number}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    documents, flow = read(tmp_path / "p", source(tmp_path / "*.jsonl", task_bytes=1))
    assert flow["dropped"] == {"no_text": 36, "wrong_type": 6}
    places = documents.read_json("reading.json")["places"]
    assert {reason: len(found) for reason, found in places.items()} == {"no_text": PLACES_KEPT, "wrong_type": 6}
    content = (tmp_path / "1.jsonl").read_bytes()
    (name, _, begin) = places["wrong_type"][2].partition(":")
    assert name == "1.jsonl" and content[int(begin) :].startswith(b'{"text": [1]}')


@pytest.mark.parametrize(
    ("content", "format", "message"),
    [
        (b"", "jsonl", r"source 'books' holds no record at all: its files are empty \(1\); .* take the source out"),
        (b"", "text", r"1 records of source 'books': no_text 1; the first such one is rows\.in"),
        (
            gzip.compress(LINES, mtime=0)[:40],
            "jsonl",
            r"truncated 1; 1 of 1 files cut, .*behind 0 records\); get such files",
        ),
        (b'{"body": "x", "id": 1}\n', "jsonl", r"text_field 'text' right\?; rows\.in:0 has the fields body, id"),
        (b'{"text": {"a": 1}}\n', "jsonl", r"'text' holds something other than text in rows\.in:0"),
        (b"a text\nand another\n", "jsonl", r"broken_line 2; rows\.in:0 is no record of format 'jsonl'"),
        (b'{"text": "  "}\n', "jsonl", r"empty_text 1; the first such one is rows\.in:0"),
    ],
)
def test_a_source_that_gives_nothing_says_why(tmp_path: Path, content: bytes, format: Any, message: str) -> None:
    path = tmp_path / "rows.in"
    path.write_bytes(content)
    with pytest.raises(StepError, match=message) as raised:
        read(tmp_path / "p", SourceConfig("books", (External(str(path), "1"),), format))
    assert ("text_field" in str(raised.value)) == ("text_field" in message or "'text' holds" in message)


@pytest.mark.parametrize("format", ["jsonl", "csv", "wikipedia"])
def test_parquet_that_is_read_as_something_else_is_called_by_its_name(tmp_path: Path, format: Any) -> None:
    path = tmp_path / "rows.jsonl"
    pq.write_table(pa.table({"text": ["a text"]}), path)
    with pytest.raises(StepError, match=rf"rows\.jsonl is parquet: set source\.format to 'parquet', .* '{format}'"):
        read(tmp_path / "p", source(path, format))
