"""`marin status`, `explain` and `diff` on small prefixes."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from marin.cli.main import main
from marin.execution import Artifact, Flow, Runner, RunOptions, StepError, current_run, make_plan, step
from marin.execution.reasons.explain import explain
from marin.execution.running.inline import InlineBackend
from marin.storage import open_store


@dataclass(frozen=True, kw_only=True)
class Docs(Artifact):
    """Some documents."""

    rows: int


@step("docs/pages", version="1", inline=True)
def pages(count: int, broken: bool = False) -> Docs:
    if broken:
        try:
            dict[str, int]()["page"]
        except KeyError as error:
            raise ZeroDivisionError("no pages left") from error
    current_run().write_bytes("pages.txt", str(count).encode())
    current_run().write_bytes("same.txt", b"same")
    return Docs(rows=count)


@step("docs/clean", version="1", inline=True)
def clean(source: Docs, threshold: float = 0.5) -> Docs:
    current_run().account(Flow("documents", read=source.rows, kept=source.rows - 1, dropped={"short": 1}))
    return Docs(rows=source.rows - 1)


@step("docs/model", version="1", inline=True)
def model(data: Docs, languages: frozenset[str] = frozenset({"en"})) -> Docs:
    if data.rows > 500:
        raise StepError("too much for a test")
    return Docs(rows=data.rows)


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    count = itertools.count(1)
    monkeypatch.setattr("marin.execution.running.runner.new_run", lambda: f"20261130T0900{next(count):02d}-0000000a")
    return str(tmp_path / "prefix")


def make(target: Artifact, prefix: str, force: str | None = None) -> list[str]:
    """Run a graph as an experiment does; returns the short ids of its steps, upstream first."""
    store = open_store(prefix)
    plan = make_plan([target], store, force=force)
    explain(plan, store)
    Runner(store, plan, RunOptions(max_concurrent=1), InlineBackend).run()
    return [one.identity[:10] for one in plan.steps]


def marin(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    return int(stop.value.code or 0)


class Said:
    """What a command printed, without what is another each time."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def lines(self, *arguments: str, code: int = 0) -> list[str]:
        self.capsys.readouterr()
        assert marin(*arguments) == code
        text = re.sub(r"-[0-9a-f]{10}\b", "", self.capsys.readouterr().out)
        text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?", "TIME", text)
        return [line.rstrip() for line in text.splitlines()]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    return Said(capsys)


def test_explain_names_the_setting_the_way_to_it_and_the_run_that_ran_the_step(prefix: str, said: Said) -> None:
    make(model(clean(pages(10))), prefix)
    *_, newest = make(model(clean(pages(20)), frozenset({"en", "de"})), prefix)
    lines = said.lines("explain", newest, "--prefix", prefix)
    assert lines[0] == "docs/model"
    assert re.match(r"  made        TIME by run 20261130T090002-0000000a on \S+, in \d+\.\d s", lines[1])
    assert lines[2:] == [
        "  because     languages[0] added 'de'; upstream docs/pages: count 10 → 20 (against docs/model)",
        "  nearest     docs/model, made TIME",
        "  differs in  languages[0] added 'de'",
        "              upstream docs/pages, through docs/clean",
        "                count 10 → 20",
    ]


def test_explain_of_the_first_record_of_a_name_says_so(prefix: str, said: Said) -> None:
    make(clean(pages(10)), prefix)
    assert said.lines("explain", "docs/clean", "--prefix", prefix)[2:] == [
        "  because     never run here",
        "  nearest     none: no earlier record of docs/clean",
    ]


def test_explain_of_a_redo_says_why_and_whether_the_output_is_another(prefix: str, said: Said) -> None:
    make(clean(pages(10)), prefix)
    make(clean(pages(10)), prefix, force="docs/pages")
    lines = said.lines("explain", "docs/pages", "--prefix", prefix)
    assert "  because     forced" in lines
    assert lines[3:5] == ["  generation  2", "  output      equals that of generation 1"]
    lines = said.lines("explain", "docs/pages@1", "--prefix", prefix)
    assert "  redone      generation 2 answers; this is generation 1" in lines


def test_explain_of_a_failed_step_has_the_cause_chain_and_what_the_step_differs_in(prefix: str, said: Said) -> None:
    make(clean(pages(10)), prefix)
    failed, blocked = make(clean(pages(20, broken=True)), prefix)
    lines = said.lines("explain", failed, "--prefix", prefix)
    assert lines[0] == "docs/pages has no record"
    assert lines[2:4] == ["  error       ZeroDivisionError: no pages left", "  caused by   KeyError: 'page'"]
    assert (
        "  to run      in run 20261130T090002-0000000a: broken False → True, count 10 → 20 (against docs/pages)"
        in lines
    )
    assert lines[-2:] == ["  differs in  broken False → True", "              count 10 → 20"]
    lines = said.lines("explain", blocked, "--prefix", prefix)
    assert lines[:3] == ["docs/clean has no record", "  blocked     needs docs/pages", "  by          docs/pages"]
    assert "  error       ZeroDivisionError: no pages left" in lines
    assert lines[-3:] == [
        "  differs in  upstream docs/pages",
        "                broken False → True",
        "                count 10 → 20",
    ]


def test_explain_of_a_name_that_is_done_and_failed_asks_which(
    prefix: str, said: Said, capsys: pytest.CaptureFixture[str]
) -> None:
    make(pages(10), prefix)
    make(pages(20, broken=True), prefix)
    assert marin("explain", "docs/pages", "--prefix", prefix) == 1
    error = capsys.readouterr().err
    assert re.fullmatch(
        r"error: 'docs/pages' is 2 steps: docs/pages-\w{10} \(no label\), docs/pages-\w{10} \(without a record\)\n",
        error,
    )
    assert marin("explain", "docs/nothing", "--prefix", prefix) == 1


def test_diff_shows_each_part_that_differs_and_exits_as_diff_does(prefix: str, said: Said) -> None:
    old = make(model(clean(pages(10))), prefix)
    new = make(model(clean(pages(20))), prefix)
    assert said.lines("diff", old[1], new[1], "--prefix", prefix, code=1) == [
        "--- docs/clean, made TIME",
        "+++ docs/clean, made TIME",
        "  recipe      upstream docs/pages",
        "                count 10 → 20",
        "  flows       documents.kept 9 → 19",
        "              documents.read 10 → 20",
    ] + [line for line in said.lines("diff", "docs/clean", "--prefix", prefix, code=1) if "  output" in line] + [
        "  result      rows 9 → 19",
    ]
    lines = said.lines("diff", "docs/pages", "--prefix", prefix, code=1)
    assert "  files       0 added, 0 removed, 1 changed, 1 equal" in lines
    assert any(line.strip().startswith("~ pages.txt 2 B, ") for line in lines)
    assert said.lines("diff", old[0], old[0], "--prefix", prefix)[2:] == [
        "  recipe      the same",
        "  output      the same",
    ]


def test_diff_of_one_step_compares_its_last_two_generations(prefix: str, said: Said) -> None:
    make(pages(10), prefix)
    make(pages(10), prefix, force="pages")
    for arguments in (("docs/pages",), ("docs/pages@1", "docs/pages@2")):
        assert said.lines("diff", *arguments, "--prefix", prefix) == [
            "--- docs/pages, made TIME",
            "+++ docs/pages generation 2, made TIME",
            "  recipe      the same",
            "  output      the same",
        ]


def test_diff_of_what_cannot_be_compared_is_one_line_and_exit_code_two(
    prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make(pages(10), prefix)
    for arguments, text in (
        (("docs/nothing",), "has no step 'docs/nothing'"),
        (("docs/pages", "docs/nothing"), "has no step 'docs/nothing'"),
        (("docs/pages",), "is one step of one generation"),
    ):
        assert marin("diff", *arguments, "--prefix", prefix) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert text in line
    for count in (11, 12):
        make(pages(count), prefix)
    assert marin("diff", "docs/pages", "--prefix", prefix) == 2
    assert "is 3 steps" in capsys.readouterr().err


def test_status_tells_done_failed_blocked_and_the_run(prefix: str, said: Said) -> None:
    assert said.lines("status", "--prefix", prefix)[0].startswith("no finished step in ")
    make(model(clean(pages(10))), prefix)
    assert [line.split()[:2] for line in said.lines("status", "--prefix", prefix)] == [
        ["done", "docs/clean"],
        ["done", "docs/model"],
        ["done", "docs/pages"],
    ]
    make(model(clean(pages(1_000))), prefix)
    lines = said.lines("status", "--prefix", prefix)
    assert "failed   docs/model  StepError: too much for a test" in lines
    assert lines[-1].endswith("; ended with failures; 2 done, 1 failed")
    make(model(clean(pages(20, broken=True))), prefix)
    lines = said.lines("status", "--prefix", prefix)
    assert "failed   docs/pages  ZeroDivisionError: no pages left" in lines
    assert "blocked  docs/clean  needs docs/pages" in lines
    assert "blocked  docs/model  needs docs/clean" in lines


def test_status_sums_many_steps_up_by_name_unless_all_are_asked_for(prefix: str, said: Said) -> None:
    for count in range(70):
        make(pages(count), prefix)
    assert said.lines("status", "--prefix", prefix) == [f"done     {'docs/pages':<48} 70 steps"]
    assert len(said.lines("status", "--all", "--prefix", prefix)) == 70


def test_status_of_a_run_shows_its_steps_with_reasons(prefix: str, said: Said) -> None:
    make(clean(pages(10)), prefix)
    make(model(clean(pages(10)), frozenset()), prefix)
    lines = said.lines("status", "20261130T090002", "--prefix", prefix)
    assert lines[0].endswith("; succeeded; 1 done, 2 cached")
    assert re.fullmatch(r"done         docs/model in \d\.\ds  never run here", lines[-1])
    assert len(said.lines("status", "20261130T090002", "--all", "--prefix", prefix)) == len(lines) + 2
    assert marin("status", "20261130T0900", "--prefix", prefix) == 1


def test_looking_writes_nothing(prefix: str, said: Said) -> None:
    old = make(model(clean(pages(10))), prefix)
    make(model(clean(pages(20, broken=True))), prefix)
    before = {(info.key, info.size) for info in open_store(prefix).list()}
    for arguments in (("status", "--all"), ("explain", old[0]), ("diff", old[0], old[0])):
        assert marin(*arguments, "--prefix", prefix) == 0
    assert {(info.key, info.size) for info in open_store(prefix).list()} == before
