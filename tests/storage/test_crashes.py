"""What a kill leaves behind: whole objects, or none."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from marin.storage import open_store
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
