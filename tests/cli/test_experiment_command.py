"""`experiment_main` on small graphs: what it prints, and how it ends."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from marin.cli.experiment import CLUSTER_CONCURRENCY, experiment_main, parse
from marin.execution import Artifact, current_run, runtime, step
from marin.recipes import Scale


@dataclass(frozen=True, kw_only=True)
class Text(Artifact):
    """Some text."""

    text: str


@step("command/text", version="1", inline=True)
def write_text(text: str) -> Text:
    """The text."""
    return Text(text=text)


@dataclass(frozen=True)
class Switch:
    """A file that is no part of an identity."""

    path: str = runtime("")


@step("command/fickle", version="1", inline=True)
def fickle(switch: Switch) -> Text:
    """A step that has a bug as soon as a file is there."""
    if Path(switch.path).exists():
        raise ZeroDivisionError("a bug")
    return Text(text="well")


def brackets(scale: Scale) -> Text:
    return write_text("a [bold]b[/bold] [/nothing]")


def interrupted(scale: Scale) -> Text:
    raise KeyboardInterrupt


def damage_records(prefix: Path, name: str) -> None:
    for path in (prefix / "_steps").glob(f"{name}-*.json"):
        path.write_text("{")


def code_of(build: object, prefix: Path, *flags: str) -> int:
    try:
        experiment_main(build, "smoke", ["--prefix", str(prefix), *flags])  # type: ignore[arg-type]
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def test_a_text_with_brackets_is_printed_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):  # made, then from its record
        assert code_of(brackets, tmp_path) == 0
        assert "a [bold]b[/bold] [/nothing]" in capsys.readouterr().out


def test_a_damaged_record_is_one_line_and_exit_code_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(brackets, tmp_path) == 0
    damage_records(tmp_path, "command.text")
    capsys.readouterr()
    for flags in ((), ("--dry-run",)):
        assert code_of(brackets, tmp_path, *flags) == 1
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert line.startswith("error: the record _steps/command.text-") and "is damaged" in line


def test_a_damaged_record_of_another_recipe_is_in_nobodys_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "_steps").mkdir()
    (tmp_path / "_steps" / "command.text-0123456789.json").write_text("{")
    assert code_of(brackets, tmp_path, "--dry-run") == 0
    assert "will run: no record of this recipe" in capsys.readouterr().out
    assert code_of(brackets, tmp_path) == 0


def test_the_traceback_of_a_redo_lies_where_the_console_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    switch = tmp_path / "switch"

    def build(scale: Scale) -> Text:
        return fickle(Switch(str(switch)))

    assert code_of(build, tmp_path / "p") == 0
    switch.touch()
    assert code_of(build, tmp_path / "p", "--force", "fickle") == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "traceback: " in line]
    folder = Path(line.partition("traceback: ")[2])
    assert any("ZeroDivisionError" in path.read_text() for path in folder.iterdir())


def test_an_interruption_outside_the_run_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(interrupted, tmp_path) == 130
    assert capsys.readouterr().err == "error: interrupted\n"


def test_steps_at_the_same_time_are_as_many_as_the_place_has_room_for() -> None:
    assert parse([], "smoke").max_concurrent == max(2, os.cpu_count() or 1)
    assert parse(["--cluster", "auto"], "smoke").max_concurrent == CLUSTER_CONCURRENCY
    assert parse(["--cluster", "auto", "--max-concurrent", "5"], "smoke").max_concurrent == 5


@step("command/file", version="1", inline=True)
def write_file() -> Text:
    """A text in a file."""
    current_run().write_bytes("text.txt", b"whole")
    return Text(text="whole")


def filed(scale: Scale) -> Text:
    return write_file()


def test_verify_redoes_what_was_damaged_at_equal_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(filed, tmp_path) == 0
    (path,) = tmp_path.glob("command/file/*/a*/text.txt")
    path.write_bytes(b"hurt!")
    assert code_of(filed, tmp_path) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert code_of(filed, tmp_path, "--verify", "--dry-run") == 0
    assert "will run: damaged: 'text.txt' has the right size and other bytes" in capsys.readouterr().out
    assert code_of(filed, tmp_path, "--verify") == 0
    assert {file.read_bytes() for file in tmp_path.glob("command/file/*/a*/text.txt")} == {b"hurt!", b"whole"}
    capsys.readouterr()
    assert code_of(filed, tmp_path, "--verify") == 0
    assert "nothing to do" in capsys.readouterr().out


@pytest.mark.parametrize("mode", ["warn", "strict", "ignore"])
def test_changed_code_is_told_refused_or_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    assert code_of(filed, tmp_path) == 0
    (path,) = tmp_path.glob("_steps/*.json")
    text = path.read_text()
    digest = json.loads(text)["code_digest"]
    path.write_text(text.replace(digest, f"{digest.partition(':')[0]}:0000000000000000"))
    capsys.readouterr()
    assert code_of(filed, tmp_path, "--code", mode) == (1 if mode == "strict" else 0)
    out, err = capsys.readouterr()
    assert ("cached (code changed" in out) == (mode == "warn")
    assert ("--code strict: the code of command/file-" in err and "--force" in err) == (mode == "strict")
    assert code_of(filed, tmp_path, "--code", mode, "--dry-run") == (1 if mode == "strict" else 0)
    assert ("code changed" in capsys.readouterr().out) == (mode == "warn")


def test_a_second_prefix_answers_and_is_shown_with_its_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(filed, tmp_path / "there") == 0
    capsys.readouterr()
    assert code_of(filed, tmp_path / "here", "--also-read", str(tmp_path / "there"), "--dry-run") == 0
    assert f"cached (5 B in {tmp_path / 'there'})" in capsys.readouterr().out
    assert code_of(filed, tmp_path / "here", "--also-read", str(tmp_path / "there")) == 0
    assert not (tmp_path / "here").exists()


def test_a_prefix_that_is_a_file_is_refused_at_planning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("in the way")
    assert code_of(filed, tmp_path / "file", "--dry-run") == 2
    assert f"the prefix {tmp_path / 'file'} is a file" in capsys.readouterr().err


def test_another_prefix_without_a_finished_step_is_a_wrong_address(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "misspelt"):
        assert code_of(filed, tmp_path / "here", "--also-read", str(tmp_path / name)) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert line == f"error: --also-read {tmp_path / name}: no finished step lies there; is the address right?"
    assert not (tmp_path / "misspelt").exists() and not (tmp_path / "here").exists()
