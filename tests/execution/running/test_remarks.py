"""What a step tells people although it ended well."""

from __future__ import annotations

import dataclasses
import io
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from marin.cli.main import main
from marin.execution import Artifact, Flow, Record, StepError, current_run, materialise, step
from marin.execution.planning.plan import make_plan
from marin.execution.records import load_record
from marin.execution.running.console import PlainConsole
from marin.execution.running.inline import InlineBackend
from marin.execution.running.runner import Runner, RunOptions
from marin.storage import open_store

CUT = "1 of 1 files is cut: rows.jsonl.gz"


@dataclass(frozen=True, kw_only=True)
class Said(Artifact):
    """What a step gives that only speaks."""

    words: int


@step("remarks/some", version="1")
def remarking(text: str) -> Said:
    """A step with something to say."""
    current_run().account(Flow("records", 325, 324, {"truncated": 1}))
    if text:
        current_run().remark(text)
    return Said(words=1)


def remark_of_shard(number: int) -> int:
    current_run().remark(f"shard {number}")
    return number


@step("remarks/shard", version="1", fans_out=True)
def remarking_in_a_shard(count: int) -> Said:
    """A step whose shards would speak."""
    current_run().map(remark_of_shard, list(range(count)))
    return Said(words=1)


def command(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 0
    return capsys.readouterr().out


def test_a_remark_is_on_the_console_and_in_show_and_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_store(str(tmp_path))
    plan = make_plan([remarking("1 of 1 files\nis cut: rows.jsonl.gz")], store)
    stream = io.StringIO()
    result = Runner(store, plan, RunOptions(max_concurrent=1), InlineBackend, observer=PlainConsole(stream)).run()
    assert result.succeeded
    (line,) = [line for line in stream.getvalue().splitlines() if "✓" in line]
    assert line.endswith(f": 324 of 325 records; ! {CUT}")
    place = ["--prefix", str(tmp_path)]
    assert f"  remark      {CUT}\n" in command(["show", "remarks/some", *place], capsys)
    assert f"\n         ! {CUT}\n" in command(["status", *place], capsys)
    assert f" ! {CUT}\n" in command(["status", result.run, *place], capsys)


def test_records_with_and_without_remarks_are_read_again_as_they_were(tmp_path: Path) -> None:
    for text in ("", CUT):
        materialise(remarking(text), prefix=str(tmp_path / (text or "none")[:4]))
    (quiet,) = (tmp_path / "none").glob("_steps/*.json")
    assert "remarks" not in json.loads(quiet.read_text())
    store = open_store(str(tmp_path / "1 of"))
    (key,) = [info.key for info in store.list("_steps")]
    record = load_record(store, key)
    assert record.remarks == (CUT,)
    assert Record.from_json(key, record.to_json()) == record
    silent = dataclasses.replace(record, remarks=())
    assert Record.from_json(key, silent.to_json()) == silent


def test_a_shard_has_no_remarks_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(StepError, match=r"run\.remark works in a step's body only"):
        materialise(remarking_in_a_shard(2), prefix=str(tmp_path))
