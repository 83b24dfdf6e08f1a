"""The encoding benchmark runs the real step, and both sides make the same tokens."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.tokens.building import prose

BENCH = Path(__file__).resolve().parents[2] / "operations" / "bench" / "encode.py"


def test_a_row_says_what_both_sides_took_for_the_same_tokens(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("\n".join(prose(seed, 60) for seed in range(40)))
    (tmp_path / "two.jsonl").write_text("".join(json.dumps({"text": prose(seed, 200)}) + "\n" for seed in range(9)))
    files = [str(tmp_path / "one.txt"), str(tmp_path / "two.jsonl")]
    done = subprocess.run(
        [sys.executable, str(BENCH), "--text", *files, "--vocabulary", "400", "--characters", "500", "--rounds", "1"],
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = done.stdout.splitlines()
    row = json.loads(line)
    assert {"name", "ours", "peer", "ratio", "unit", "input"} <= set(row)
    assert abs(row["ratio"] - row["ours"] / row["peer"]) < 0.02
    documents = int(row["input"].split()[0])
    assert documents > 20
    assert row["tokens"] > 20 * documents
