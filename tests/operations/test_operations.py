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


def test_every_alert_has_one_limit_a_severity_and_a_reason() -> None:
    alerts = yaml.safe_load((ROOT / "operations" / "alerts.yaml").read_text())["alerts"]
    assert len({alert["name"] for alert in alerts}) == len(alerts)
    for alert in alerts:
        assert len({"above", "below"} & alert.keys()) == 1, alert["name"]
        assert alert["severity"] in ("page", "look", "note")
        assert alert["why"]
        assert alert["metric"]


def test_the_entropy_limit_is_just_below_a_uniform_load_over_384_experts() -> None:
    alerts = {alert["name"]: alert for alert in yaml.safe_load((ROOT / "operations/alerts.yaml").read_text())["alerts"]}
    assert alerts["routing_entropy"]["below"] == pytest.approx(math.log(384) - 0.031, abs=1e-3)


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
