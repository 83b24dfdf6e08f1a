"""`marin verify`, `gc`, `pin`, `tombstone`, `adopt` and `copy` on a small prefix: what they say, and how they exit."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from marin.cli.main import main
from marin.execution import Artifact, adopted, current_run, materialise, step
from marin.storage import open_store

EXPERIMENT = """
from tests.cli.test_lifecycle_commands import shout, write_text


def build(scale):
    return shout(write_text("kept at any scale"))
"""


@dataclass(frozen=True, kw_only=True)
class Text(Artifact):
    """Some text."""

    length: int


@step("test/text", version="1")
def write_text(text: str) -> Text:
    """Write the text to a file."""
    current_run().write_bytes("text.txt", text.encode())
    return Text(length=len(text))


@step("test/shout", version="1")
def shout(text: Text) -> Text:
    """The text in capitals."""
    current_run().write_bytes("text.txt", text.read("text.txt").upper())
    return Text(length=text.length)


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    place = str(tmp_path / "p")
    materialise(shout(write_text("hello").label("greeting")), place)
    return place


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    return int(stop.value.code or 0)


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What was printed."""
    return capsys.readouterr().out.splitlines()


def the_one_error(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of standard error."""
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("error: ")
    return line


def file_of(prefix: str, name: str) -> Path:
    """The one file of a step."""
    (path,) = Path(prefix, name).rglob("text.txt")
    return path


# --- verify ---


def test_verify_says_in_one_line_a_file_what_is_damaged_and_what_to_do(
    prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("verify", "--prefix", prefix) == 0
    assert lines(capsys) == ["2 steps, 2 files, 10B checked: all as recorded"]
    file_of(prefix, "test/text").write_text("HELLO")
    assert run("verify", "--prefix", prefix) == 1
    damaged, summary = lines(capsys)
    assert (
        damaged.startswith("damaged: test/text-") and "(greeting): 'text.txt' has the right size and other" in damaged
    )
    assert damaged.endswith("; redo the step: --force '^test/text$'")
    assert summary == "2 steps, 2 files, 10B checked: 1 damaged"
    assert run("verify", "--sizes", "--prefix", prefix) == 0
    assert run("verify", "test/shout", "--prefix", prefix) == 0
    assert run("verify", "test/shout", "--upstream", "--prefix", prefix) == 1


def test_verify_counts_a_damaged_record_and_no_tombstone(prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tombstone", "test/text", "--yes", "--prefix", prefix) == 0
    capsys.readouterr()
    assert run("verify", "--prefix", prefix) == 0
    assert lines(capsys) == ["1 step, 1 file, 5B checked, 1 more without bytes (tombstone): all as recorded"]
    next(Path(prefix).glob("_steps/test.shout*.json")).write_text("{ torn")
    assert run("verify", "--prefix", prefix) == 1
    assert "is damaged" in lines(capsys)[0]


def test_verify_without_such_a_step_or_with_half_a_question(prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("verify", "test/nothing", "--prefix", prefix) == 1
    assert "steps there: test/shout, test/text" in the_one_error(capsys)
    assert run("verify", "--upstream", "--prefix", prefix) == 2
    assert "--upstream goes with a step" in the_one_error(capsys)


# --- gc ---


def test_verify_of_a_prefix_without_a_finished_step_is_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "misspelt"):
        for flags in ((), ("--sizes",)):
            assert run("verify", "--prefix", str(tmp_path / name), *flags) == 1
            assert f"no finished step in {tmp_path / name}" in the_one_error(capsys)
    assert not (tmp_path / "misspelt").exists()


def test_gc_lists_by_step_and_reason_and_removes_only_when_asked(
    prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    materialise(shout(write_text("kept at any scale")), prefix)
    file = tmp_path / "my_experiment.py"
    file.write_text(EXPERIMENT)
    arguments = ("gc", "--experiment", f"{file}:smoke", "--keep-days", "0", "--grace-hours", "0", "--prefix", prefix)
    before = open_store(prefix).list()
    assert run(*arguments) == 0
    printed = lines(capsys)
    assert any("test/shout" in line and "nothing that is kept needs it" in line for line in printed)
    assert any("_runs" in line and "an old run" in line for line in printed)
    assert printed[-1].endswith("; remove it with --delete")
    assert open_store(prefix).list() == before
    assert run(*arguments, "--delete") == 0
    assert lines(capsys)[-1].startswith("removed 1")
    assert len(list(Path(prefix).glob("_steps/*.json"))) == 2
    assert run("verify", "--prefix", prefix) == 0
    capsys.readouterr()
    assert run(*arguments, "--delete") == 0
    assert "0 of" in lines(capsys)[-1]


def test_gc_keeps_everything_that_is_young_by_default(prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = open_store(prefix).list()
    assert run("gc", "--delete", "--prefix", prefix) == 0
    assert lines(capsys)[-1].startswith("0 of ")
    assert open_store(prefix).list() == before


def test_gc_does_nothing_for_an_experiment_that_it_cannot_plan(
    prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = {
        "broken.py": ("import nothing_like_this", "cannot be imported: ModuleNotFoundError"),
        "empty.py": ("x = 1", "has no function build"),
        "failing.py": ("def build(scale):\n    raise ValueError('no such cell')", "at the scale smoke: no such cell"),
    }
    for name, (code, message) in wrong.items():
        (tmp_path / name).write_text(code)
        assert run("gc", "--experiment", f"{tmp_path / name}:smoke", "--delete", "--prefix", prefix) == 2
        assert message in the_one_error(capsys)
    assert run("gc", "--experiment", "nowhere.py:smoke", "--prefix", prefix) == 2
    assert "there is no such file" in the_one_error(capsys)
    (tmp_path / "sound.py").write_text(EXPERIMENT)
    assert run("gc", "--experiment", f"{tmp_path / 'sound.py'}:smok", "--prefix", prefix) == 2
    assert "'smok' is no scale; did you mean smoke" in the_one_error(capsys)
    for flag in ("--keep-days", "--grace-hours"):
        assert run("gc", flag, "-3", "--prefix", prefix) == 2
        assert f"{flag} -3: a number that is not negative" in the_one_error(capsys)


def test_status_and_ls_say_of_which_steps_the_bytes_were_removed(
    prefix: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("tombstone", "greeting", "--yes", "--prefix", prefix) == 0
    capsys.readouterr()
    for command in ("ls", "status"):
        assert run(command, "--prefix", prefix) == 0
        told = [line for line in capsys.readouterr().out.splitlines() if "bytes removed" in line]
        assert len(told) == 1 and "(greeting)" in told[0]
    monkeypatch.setattr("marin.cli.status.LISTED", 1)
    assert run("status", "--prefix", prefix) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if "bytes removed" in line]
    assert len(told) == 1 and "test/text" in told[0] and "1 step, 1 with bytes removed" in told[0]


# --- pins ---


def test_pins_are_set_listed_and_taken_off(prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    (name,) = (path.name for path in Path(prefix, "_runs").iterdir())
    assert run("pins", "--prefix", prefix) == 0
    assert lines(capsys) == [f"nothing is pinned in {prefix}"]
    assert run("pin", "greeting", "--note", "for the paper", "--prefix", prefix) == 0
    assert run("pin", name.rpartition("-")[2], "--prefix", prefix) == 0
    assert run("pin", "greeting", "--prefix", prefix) == 0
    step_pinned, run_pinned, again = lines(capsys)
    assert step_pinned.startswith("test/text-") and "with all that it was made from" in step_pinned
    assert run_pinned == f"run {name} is pinned, 2 steps of its plan"
    assert again.endswith("was pinned already")
    assert run("pins", "--prefix", prefix) == 0
    listed = lines(capsys)
    assert len(listed) == 2 and listed[1].endswith("for the paper")
    assert run("gc", "--keep-days", "0", "--grace-hours", "0", "--prefix", prefix) == 0
    assert lines(capsys)[-1].startswith("0 of ")
    assert run("tombstone", "greeting", "--yes", "--prefix", prefix) == 1
    assert "take the pin off first: marin unpin" in the_one_error(capsys)
    for what in (name, "test/text"):
        assert run("unpin", what, "--prefix", prefix) == 0
    capsys.readouterr()
    assert run("unpin", "test/text", "--prefix", prefix) == 1
    assert "is not pinned; pinned there: none" in the_one_error(capsys)


# --- tombstone ---


def test_a_tombstone_is_shown_first_and_put_up_when_asked(prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tombstone", "greeting", "--prefix", prefix) == 0
    printed = lines(capsys)
    assert "1 object, 5B; the record stays" in printed[0]
    assert printed[1].startswith("  steps made from it, which stay valid: test/shout-")
    assert printed[2] == "nothing was removed; remove it with --yes"
    assert file_of(prefix, "test/text").read_text() == "hello"
    assert run("tombstone", "greeting", "--yes", "--prefix", prefix) == 0
    assert not list(Path(prefix).glob("test/text/*"))
    assert run("cat", "greeting", "text.txt", "--prefix", prefix) == 1
    capsys.readouterr()
    assert run("tombstone", "greeting", "--yes", "--prefix", prefix) == 0
    assert "removed already" in lines(capsys)[0]
    assert materialise(shout(write_text("hello")), prefix).read("text.txt") == b"HELLO"


# --- adopt ---


def test_adopt_prints_the_handle_that_a_graph_uses(
    prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text("mine")
    (tmp_path / "result.json").write_text(json.dumps({"length": 4}))
    name = f"{__name__}:Text"
    arguments = (str(tmp_path / "text.txt"), "--name", "test/mine", "--version", "2026-11", "--type", name)
    assert run("adopt", *arguments, "--prefix", prefix) == 1
    assert "--result" in the_one_error(capsys)
    assert run("adopt", *arguments, "--result", f"@{tmp_path / 'result.json'}", "--prefix", prefix) == 0
    printed = lines(capsys)
    assert printed[0] == "1 file, 4B"
    assert printed[-1] == '  adopted("test/mine", version="2026-11", kind=Text)'
    handle = adopted("test/mine", version="2026-11", kind=Text)
    assert materialise(shout(handle), prefix).read("text.txt") == b"MINE"


def test_adopt_refuses_a_wrong_command_line_in_one_line(
    prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text("mine")
    good = {"--name": "test/mine", "--version": "1", "--type": f"{__name__}:Text", "--result": '{"length": 4}'}
    wrong = {
        "--name": ("My Data", "lower-case path parts"),
        "--version": (" ", "--version is empty"),
        "--type": ("nowhere:Text", "No module named 'nowhere'"),
        "--result": ("{length: 4}", "--result is not JSON"),
    }
    for flag, (value, message) in wrong.items():
        words = [word for pair in {**good, flag: value}.items() for word in pair]
        assert run("adopt", str(tmp_path / "text.txt"), *words, "--prefix", prefix) == 2
        assert message in the_one_error(capsys)
    for value in ("json:JSONDecoder", "marin.execution:Artifact"):
        words = [word for pair in {**good, "--type": value}.items() for word in pair]
        assert run("adopt", str(tmp_path / "text.txt"), *words, "--prefix", prefix) == 2
        assert "is no class of artifacts" in the_one_error(capsys)
    words = [word for pair in good.items() for word in pair]
    assert run("adopt", str(tmp_path / "nothing"), *words, "--prefix", prefix) == 1
    assert "there is no file at" in the_one_error(capsys)


# --- copy ---


def test_copy_shows_what_it_brings_and_stays_within_its_budget(
    prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = str(tmp_path / "here")
    words = ("copy", "test/shout", "--from", prefix, "--prefix", here)
    assert run(*words, "--budget", "0.000000001") == 1
    captured = capsys.readouterr()
    assert "1 file, 5B" in captured.out and "more than --budget" in captured.err and "--also-read" in captured.err
    assert not Path(here).exists()
    assert run(*words) == 0
    assert lines(capsys)[1].startswith(f"copied from {prefix}: test/shout-")
    assert run("verify", "--prefix", here) == 0
    capsys.readouterr()
    assert run(*words) == 0
    assert lines(capsys)[0].endswith(f"is in {here} already")
    assert run("copy", "test/shout", "--from", here, "--prefix", here) == 2


# --- all of them ---


def test_a_flag_of_another_command_is_refused(prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("gc", "--yes", "--prefix", prefix) == 2
    assert "unknown argument --yes" in the_one_error(capsys)


def test_the_help_of_the_command_imports_no_room_but_this_one() -> None:
    code = (
        "import sys\nfrom marin.cli.main import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print([name for name in sys.modules if name.startswith('marin.') and not name.startswith('marin.cli')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
