"""The `marin` command on a small prefix."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from marin.cli.main import main
from marin.execution import Artifact, Flow, current_run, materialise, step


@dataclass(frozen=True, kw_only=True)
class Text(Artifact):
    """Some text."""

    length: int


@step("test/text", version="1")
def write_text(text: str) -> Text:
    """Write the text to a file."""
    run = current_run()
    run.write_bytes("text.txt", text.encode())
    run.account(Flow("words", 3, 2, {"empty": 1}))
    return Text(length=len(text))


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    place = str(tmp_path / "p")
    materialise(write_text("hello there").label("greeting"), place)
    return place


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    return int(stop.value.code or 0)


def test_status_show_ls_and_cat_read_what_a_run_left(prefix: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run("status", "--prefix", prefix) == 0
    assert b"done     test/text-" in capsysbinary.readouterr().out
    for name in ("test/text", "test.text", "greeting"):
        assert run("show", name, "--prefix", prefix) == 0
        shown = capsysbinary.readouterr().out
        assert b"read 3, kept 2, dropped: empty 1" in shown and b'"text": "hello there"' in shown
    assert run("ls", "greeting", "--prefix", prefix) == 0
    assert b"text.txt" in capsysbinary.readouterr().out
    assert run("cat", "greeting", "text.txt", "--prefix", prefix) == 0
    assert capsysbinary.readouterr().out == b"hello there"


def test_what_is_not_there_is_one_line_and_exit_code_one(prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (("show", "nothing"), ("cat", "greeting", "other.txt"), ("cat", "no/such/key")):
        assert run(*arguments, "--prefix", prefix) == 1
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert line.startswith("error: ")


def test_a_wrong_command_line_is_one_line_and_exit_code_two(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (("stats",), ("show",), ("model", "--scale", "giant"), ("status", "--prefx", "x")):
        assert run(*arguments) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert line.startswith("error: ")


def test_cat_of_a_step_or_a_folder_says_what_it_is_and_names_files(
    prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = next(path.relative_to(prefix) for path in Path(prefix).rglob("text.txt")).parent
    for what, told in (
        ("greeting", "is the step test/text-"),
        ("test/text", "text.txt"),
        (str(folder), f"{folder} is a folder; name a file of it, such as {folder}/text.txt"),
        ("_steps", "_steps is a folder; name a file of it, such as _steps/test.text-"),
    ):
        assert run("cat", what, "--prefix", prefix) == 1
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert told in line


def test_a_wrong_prefix_is_one_line_and_exit_code_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("in the way")
    for prefix in ("gs:/bucket", "", "file"):
        for arguments in (("status",), ("pins",), ("verify",)):
            assert run(*arguments, "--prefix", prefix) == 2
            (line,) = capsys.readouterr().err.strip().splitlines()
            assert line.startswith("error: the prefix ")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("scale", "total", "active", "flops", "steps"),
    [
        ("hero", 535_477_106_688, 22_762_487_808, 150_362_652_672, 390_251),
        ("d768", 1_591_848_448, 60_555_264, None, 11_420),
        ("d1024", 3_980_116_480, 162_004_992, None, 15_276),
        ("d1536", 11_534_398_464, 481_296_384, None, 15_128),
        ("d2048", 27_742_902_528, 1_170_735_104, None, 20_072),
    ],
)
def test_model_prints_the_published_numbers(
    scale: str, total: int, active: int, flops: int | None, steps: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("model", "--scale", scale) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["total_parameters"], printed["active_parameters"], printed["steps"]) == (total, active, steps)
    if flops is not None:
        assert printed["flops_per_token"] == flops


def test_a_step_is_found_by_the_name_that_ls_prints_and_a_cut_file_is_named_with_the_way_out(
    prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("ls", "--prefix", prefix) == 0
    _, display, label, place = capsys.readouterr().out.split()
    assert run("show", f"{display} {label}", "--prefix", prefix) == 0
    capsys.readouterr()
    (Path(prefix) / place / "text.txt").write_text("cut")
    assert run("cat", "greeting", "text.txt", "--prefix", prefix) == 1
    assert "has 3 bytes, its record says 11" in (said := capsys.readouterr().err) and "--force" in said


def test_a_damaged_record_is_named_and_the_others_are_shown(prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    materialise(write_text("another"), prefix)
    next(Path(prefix).glob("_steps/*.json")).write_text("{ broken")
    assert run("status", "--prefix", prefix) == 0
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 1 and captured.out.startswith("done")
    assert "is damaged" in captured.err
