"""The alert limits are well-formed, and the benchmarks compare in the right direction."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from tests.operations.scripts import loaded

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    """The benchmark script as a module."""
    return loaded("cached_rerun")


def test_the_alerts_are_those_that_runs_judge_and_each_has_its_place_in_the_runbook() -> None:
    from marin.training.watch.rules import PACKAGED, read_rules

    rules = read_rules(ROOT / "operations" / "alerts.yaml")
    assert rules == read_rules(PACKAGED)
    runbook = (ROOT / "operations" / "runbooks" / "alerts.md").read_text()
    for rule in rules:
        assert f"`{rule.name}`" in runbook


def test_the_entropy_limit_is_that_of_the_public_run_as_a_share_of_a_uniform_load() -> None:
    alerts = {alert["name"]: alert for alert in yaml.safe_load((ROOT / "operations/alerts.yaml").read_text())["alerts"]}
    assert alerts["routing_entropy"]["below"] == pytest.approx(5.92 / math.log(384), abs=1e-4)


def test_a_faster_peer_gives_a_ratio_below_one(bench: ModuleType) -> None:
    ours = [bench.Timing(wall, wall / 2) for wall in (2.0, 1.0, 9.0)]
    peer = [bench.Timing(1.0, 4.0)] * 3
    wall, cpu = bench.comparison(ours, peer, "floor", "nothing")
    assert (wall["ours"], wall["peer"], wall["ratio"], wall["unit"]) == (2.0, 1.0, 0.5, "s wall")
    assert (cpu["ours"], cpu["ratio"], cpu["unit"]) == (1.0, 4.0, "s cpu")
    assert {"name", "ours", "peer", "ratio", "unit", "input"} <= json.loads(json.dumps(wall)).keys()


def test_a_process_is_timed_with_its_children(bench: ModuleType, tmp_path: Path) -> None:
    burn = "import time; end = time.process_time() + 0.2\nwhile time.process_time() < end: pass"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"
    timing = bench.timed(bench.Subject("ours", (sys.executable, "-c", child), tmp_path))
    assert timing.cpu >= 0.2
    assert timing.wall >= 0.2


def test_a_command_that_fails_is_no_figure(bench: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="exited 3"):
        bench.timed(bench.Subject("ours", (sys.executable, "-c", "raise SystemExit(3)"), tmp_path))


def test_a_listing_notices_a_changed_file(bench: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    before = bench.listing(tmp_path)
    (tmp_path / "a").write_text("22")
    assert bench.listing(tmp_path) != before
