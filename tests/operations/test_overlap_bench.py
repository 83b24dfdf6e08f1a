"""The overlap benchmark plants what it says and counts what was found of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.data.dedup.texts import prose
from tests.operations.scripts import loaded


def test_every_planted_item_is_counted_under_its_alteration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench = loaded("overlap")
    (tmp_path / "text.txt").write_text(" ".join(prose(n) for n in range(600)))
    rows = [{"q": prose(5000 + n), "a": f"answer {n}"} for n in range(60)] + [{"q": "too short", "a": ""}]
    (tmp_path / "items.jsonl").write_text("\n".join(map(json.dumps, rows)))
    files = ["--text", str(tmp_path / "text.txt"), "--items", f"{tmp_path / 'items.jsonl'}:q,a"]
    bench.main([*files, "--planted", "36", "--documents", "50", "--rounds", "1", "--no-peer"])
    cost, recall, wrong = map(json.loads, capsys.readouterr().out.splitlines())
    assert cost["ours"] > 0
    assert recall["planted"] == dict.fromkeys(bench.ALTERATIONS, 3)
    assert recall["found"] == recall["planted"]
    assert recall["ours"] == 1.0
    assert (wrong["ours"], wrong["unit"]) == (0, "documents of 14")
