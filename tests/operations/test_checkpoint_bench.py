"""The checkpoint benchmark measures real saves and restores beside torch's, row by row."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "operations" / "bench" / "checkpoint.py"


def test_every_row_compares_with_torch_on_the_same_state(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(BENCH), "--megabytes", "26", "--rounds", "1", "--folder", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert list(rows) == ["blocking", "blocking_torch_save", "save", "restore", "memory_save", "memory_restore"]
    assert {row["input"] for row in rows.values()} == {"25 MB in 6 tensors"}
    for row in rows.values():
        assert {"name", "ours", "peer", "ratio", "unit", "input"} <= set(row)
    assert 0 < rows["blocking"]["share"] < 1
    assert rows["memory_save"]["buffers_kept"] == 1.0
    assert rows["memory_restore"]["ours"] < 1 <= round(rows["memory_restore"]["peer"])
    assert list(tmp_path.iterdir()) == []
