"""Every command in the documentation runs as it stands, beside a finished run, and leaves that run as it was.

A block `sh` runs; `sh fails` must end with an error; `sh no-run: REASON` is left out. A block `text output` right after
one of them is exactly what it prints.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, Block, blocks, name_of
from tests.pipeline.running import listing

MOST_LEFT_OUT = 9
SECONDS = 120.0


def shell_blocks(page: Path) -> list[tuple[Block, str | None]]:
    """The shell blocks of a page, each with the output that the page shows for it."""
    found = blocks(page)
    pairs = zip(found, [*found[1:], None], strict=False)
    return [
        (block, after.body if after is not None and (after.language, after.words) == ("text", "output") else None)
        for block, after in pairs
        if block.language == "sh"
    ]


def runs(block: Block) -> bool:
    """Whether a block is run."""
    return not block.words.startswith("no-run")


WITH_COMMANDS = [page for page in PAGES if any(runs(block) for block, _ in shell_blocks(page))]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the experiments in it, and `python` and `marin` in a folder for the path."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "experiments").symlink_to(ROOT / "experiments")
    (folder / "bin").mkdir()
    for name, arguments in (("python", ""), ("marin", "-m marin.cli.main ")):
        script = folder / "bin" / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}"$@"\n', encoding="utf-8")
        script.chmod(0o755)
    return folder


@pytest.mark.ray
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=name_of)
def test_the_commands_of_a_page_run_and_leave_the_prefix_as_it_was(page: Path, place: Path, smoke_prefix: Path) -> None:
    before = listing(smoke_prefix)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "MARIN_"))},
        "PATH": f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "MARIN_PREFIX": str(smoke_prefix),
    }
    for block, output in shell_blocks(page):
        if not runs(block):
            continue
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.body],
            cwd=place,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
        )
        failed = done.returncode != 0
        assert failed == (block.words == "fails"), f"{block.place} ended with {done.returncode}:\n{done.stdout}"
        assert "Traceback" not in done.stdout, f"{block.place}:\n{done.stdout}"
        assert output in (None, done.stdout), f"{block.place} prints something else:\n{done.stdout}"
    assert listing(smoke_prefix) == before


def test_few_blocks_are_left_out_and_each_says_why() -> None:
    left_out = [block for page in PAGES for block, _ in shell_blocks(page) if not runs(block)]
    assert len(left_out) <= MOST_LEFT_OUT
    for block in left_out:
        assert re.fullmatch(r"no-run: \S.{5,}", block.words), f"{block.place} has no reason: {block.words!r}"


def test_blocks_have_a_language_that_is_known() -> None:
    for page in PAGES:
        for block in blocks(page):
            assert block.language in ("sh", "text", "yaml", "python", "mermaid"), block.place
            assert block.words in ("", "output", "fails") or block.words.startswith("no-run: "), block.place
