"""What a kill leaves behind: whole objects, or none."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from marin.storage import open_store
from marin.storage.local import LEFT_OVER_SECONDS
from tests.storage.backends import wait_for

SIZE = 300_000


@pytest.mark.parametrize(("command", "folder"), [("creates", "records"), ("writes", "data")])
def test_a_kill_in_the_middle_leaves_whole_objects_only(command: str, folder: str, tmp_path: Path) -> None:
    store = open_store(tmp_path / "prefix")
    for kill in range(3):
        mine = f"{store.url}/{kill}"
        process = subprocess.Popen([sys.executable, "-m", "tests.storage.backends", command, mine])
        try:
            wait_for(lambda mine=mine: len(open_store(mine).list(folder)) >= 3)
            time.sleep(0.003 * kill)
        finally:
            process.kill()
            process.wait(timeout=30)
        found = open_store(mine).list()
        assert len(found) >= 3
        for info in found:
            index = int(info.key.rpartition("/")[2])
            assert open_store(mine).read(info.key) == bytes([index % 251]) * SIZE
        after = f"{folder}/{len(found):07d}"
        open_store(mine).create(after, b"the next writer is not in the way of anything")


def test_what_killed_writers_left_half_written_goes_after_a_day_and_a_living_writer_keeps_its_file(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path / "prefix")
    temporary = tmp_path / "prefix" / "_tmp"
    process = subprocess.Popen([sys.executable, "-m", "tests.storage.backends", "writes", store.url])
    try:
        wait_for(lambda: len(store.list("data")) >= 1)
    finally:
        process.kill()
        process.wait(timeout=30)
    (temporary / "young").write_bytes(b"of another machine, a minute ago")
    (temporary / "old").write_bytes(b"of another machine, long ago")
    mine = store.writer("mine/slow")
    mine.write(b"x" * 100_000)
    long_ago = time.time() - LEFT_OVER_SECONDS - 60
    for path in temporary.iterdir():
        if path.name != "young":
            os.utime(path, (long_ago, long_ago))
    store.check_writable()
    assert len(list(temporary.iterdir())) == 2
    assert (temporary / "young").exists()
    mine.close()
    assert store.read("mine/slow") == b"x" * 100_000
    assert [path.name for path in temporary.iterdir()] == ["young"]
