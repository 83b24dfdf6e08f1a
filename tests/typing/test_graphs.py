"""A wrongly wired graph is refused by the type checker, a right one is not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GRAPHS = Path(__file__).parent / "graphs"
EXPECTED = re.compile(r"# error: ([a-z-]+)$")
REPORTED = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: (?P<text>.*)  \[(?P<code>[a-z-]+)\]$")


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, int, str, str]]:
    """(file, line, code, text) of every error that mypy --strict reports for the graphs."""
    pytest.importorskip("mypy")
    command = [
        *(sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context"),
        *("--config-file", "pyproject.toml", "--follow-imports", "silent"),
        *("--explicit-package-bases", "--namespace-packages"),
        *("--cache-dir", str(tmp_path_factory.mktemp("mypy"))),
        *(str(path.relative_to(ROOT)) for path in sorted(GRAPHS.glob("*.py"))),
    ]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    matches = [REPORTED.match(line) for line in done.stdout.splitlines()]
    return [(Path(m["file"]).name, int(m["line"]), m["code"], m["text"]) for m in matches if m is not None]


def test_a_rightly_wired_graph_passes(reported: list[tuple[str, int, str, str]]) -> None:
    assert [error for error in reported if error[0] != "wrong.py"] == []


def test_every_wrong_wiring_is_an_error_in_its_line(reported: list[tuple[str, int, str, str]]) -> None:
    lines = (GRAPHS / "wrong.py").read_text(encoding="utf-8").splitlines()
    expected = {(number, match[1]) for number, line in enumerate(lines, 1) if (match := EXPECTED.search(line))}
    assert len(expected) == 17
    assert {(line, code) for file, line, code, _ in reported if file == "wrong.py"} == expected


def test_the_error_names_what_was_given_and_what_was_wanted(reported: list[tuple[str, int, str, str]]) -> None:
    texts = [text for file, _, _, text in reported if file == "wrong.py"]
    assert 'Argument 1 to "tokenize" has incompatible type "Tokenizer"; expected "Documents"' in texts
    assert '"Documents" has no attribute "vocab_size"' in texts
