"""The DAG benchmark has the graphs that it says, measures what it says, and compares in the right direction."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.operations.scripts import BENCH, loaded


@pytest.fixture(scope="module")
def shape() -> ModuleType:
    return loaded("dag_shape")


@pytest.fixture(scope="module")
def dag(shape: ModuleType) -> ModuleType:
    return loaded("dag")


def test_the_lattice_has_rows_of_ten_with_two_needs_a_step(shape: ModuleType) -> None:
    assert [shape.above("lattice", number, 30) for number in (0, 9)] == [(), ()]
    assert shape.above("lattice", 10, 30) == (0, 1)
    assert shape.above("lattice", 29, 30) == (10, 19)
    assert shape.last("lattice", 30) == tuple(range(20, 30))
    with pytest.raises(ValueError, match="no multiple of 10"):
        shape.last("lattice", 31)


def test_the_chain_has_one_end_and_the_fan_a_narrow_sink(shape: ModuleType) -> None:
    assert [shape.above("chain", number, 3) for number in range(3)] == [(), (0,), (1,)]
    assert shape.last("chain", 3) == (2,)
    assert [shape.above("fan", number, 14) for number in (0, 1, 12)] == [(), (0,), (0,)]
    assert shape.above("fan", 13, 14) == tuple(range(1, 11))
    assert shape.last("fan", 14) == (11, 12, 13)


def test_every_config_has_300_bytes_and_a_changed_one_differs(shape: ModuleType) -> None:
    texts = [
        json.dumps(shape.config(number, changed=7), sort_keys=True, separators=(",", ":"))
        for number in (0, 7, 10, 123, 9999)
    ]
    assert {len(text.encode()) for text in texts} == {300}
    assert shape.config(7) != shape.config(7, changed=7)
    assert shape.config(7) == shape.config(7, changed=8)


def test_our_rows_say_what_was_run_and_what_the_store_was_asked() -> None:
    done = subprocess.run(
        [
            sys.executable, str(BENCH / "dag.py"), "--no-peers", "--no-experiment",
            "--steps", "20", "--small", "10", "--repeats", "1",
        ],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    for row in rows:
        assert {"name", "ours", "peer", "ratio", "unit", "input"} <= row.keys()
        assert row["ours"] > 0
        assert row["peer"] is row["ratio"] is None
    lattice = {row["name"]: row for row in rows if row["unit"] == "requests" and "lattice of 20" in row["input"]}
    assert (lattice["first_run"]["to_do"], lattice["no_op"]["to_do"], lattice["leaf_changed"]["to_do"]) == (20, 0, 1)
    assert lattice["no_op"]["requests"] == {"LIST": 1}
    assert lattice["no_op"]["run_requests"] == {}
    assert {row["input"].split(" ")[0] for row in rows if row["name"] == "no_op"} == {"lattice", "chain", "fan"}
    (files,) = [row for row in rows if row["name"] == "first_run_with_files" and row["unit"] == "requests"]
    assert files["requests"]["PUT"] == 10


def test_a_peer_that_needs_more_gives_a_ratio_above_one(dag: ModuleType) -> None:
    case = dag.Case("chain", 5)
    ours = dag.Figures(case, {"noop": [dag.Usage(1.0, cpu, 50.0, "{}") for cpu in (0.5, 0.4, 0.9)]})
    peer = dag.Figures(case, {"noop": [dag.Usage(1.0, 2.0, 25.0, "")]})
    cpu, memory = dag.rows_of(ours, "noop", [(dag.Race("doit", case, ("noop",)), peer)])
    assert (cpu["ours"], cpu["peer"], cpu["ratio"], cpu["unit"]) == (0.5, 2.0, 4.0, "s cpu")
    assert cpu["spread"] == [0.4, 0.9]
    assert (memory["ratio"], memory["peer_name"]) == (0.5, "doit")


def test_a_peer_that_failed_has_a_row_that_says_so(dag: ModuleType) -> None:
    case = dag.Case("chain", 5)
    ours = dag.Figures(case, {"noop": [dag.Usage(1.0, 0.5, 50.0, "{}")]})
    peer = dag.Figures(case, missing={"noop": "stopped after 120 s"})
    row, _ = dag.rows_of(ours, "noop", [(dag.Race("doit", case, ("noop",)), peer)])
    assert (row["peer"], row["ratio"], row["peer_no_figure"]) == (None, None, "stopped after 120 s")


def test_a_process_is_measured_with_its_children_and_within_bounds(dag: ModuleType, tmp_path: Path) -> None:
    burn = "import time; block = b'x' * 80_000_000\nwhile time.process_time() < 0.2: pass"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}]); print('one'); print('two')"
    usage = dag.measured((sys.executable, "-c", child), tmp_path, 60.0)
    assert usage.cpu >= 0.2
    assert usage.peak_mb >= 75
    assert usage.printed == "two"
    with pytest.raises(dag.NoFigure, match="exit code 3"):
        dag.measured((sys.executable, "-c", "raise SystemExit(3)"), tmp_path, 60.0)
    with pytest.raises(dag.NoFigure, match=r"stopped after 0\.5 s"):
        dag.measured((sys.executable, "-c", "import time; time.sleep(60)"), tmp_path, 0.5)
