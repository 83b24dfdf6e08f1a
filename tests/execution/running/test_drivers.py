"""Whole driver processes on one prefix: together, killed, interrupted."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from marin.execution import make_plan
from marin.execution.running.claims import process_start
from marin.storage import open_store
from tests.execution.driver import Driver
from tests.execution.graphs import Probe, executing, executions, graph
from tests.storage.backends import wait_for

TAKEOVER_SECONDS = 15.0


@pytest.fixture
def tally(tmp_path: Path) -> Path:
    folder = tmp_path / "tally"
    folder.mkdir()
    return folder


def test_two_drivers_at_once_run_each_step_once_and_both_succeed(tmp_path: Path, tally: Path) -> None:
    prefix = tmp_path / "prefix"
    with Driver(prefix, "diamond", tally) as one, Driver(prefix, "diamond", tally) as other:
        results = [one.finish(), other.finish()]
    assert [code for code, _, _ in results] == [0, 0], results
    for step in ("leaf-a", "leaf-b", "upper-a", "upper-b", "joined"):
        assert executions(tally, step) == 1
    for _, printed, _ in results:
        assert set(printed.get("statuses", {}).values()) <= {"done", "cached"}


def test_a_second_driver_waits_for_a_live_holder_and_takes_its_result(tmp_path: Path, tally: Path) -> None:
    prefix, go = tmp_path / "prefix", tmp_path / "go"
    with Driver(prefix, "held", tally, "--hold", str(go)) as one:
        wait_for(lambda: executions(tally, "leaf-held") == 1)
        with Driver(prefix, "held", tally, "--hold", str(go)) as other:
            time.sleep(2.0)
            assert other.process.poll() is None
            go.touch()
            results = [one.finish(), other.finish()]
    assert [code for code, _, _ in results] == [0, 0], results
    assert executions(tally, "leaf-held") == executions(tally, "joined") == 1


def test_after_a_killed_driver_the_next_goes_on_at_once_and_redoes_no_finished_shard(
    tmp_path: Path, tally: Path
) -> None:
    prefix = tmp_path / "prefix"
    with Driver(prefix, "map", tally) as first:
        wait_for(lambda: len(list(prefix.glob("test/squares/*/state/000001/map00/*/done.json"))) >= 3)
        first.process.kill()
        first.process.wait(timeout=10)
    finished = [
        int(path.parent.name.split("-")[0]) for path in prefix.glob("test/squares/*/state/000001/map00/*/done.json")
    ]
    assert 3 <= len(finished) < 12
    with Driver(prefix, "map", tally) as second:
        wait_for(lambda: executions(tally, "squares-slow") == 2, TAKEOVER_SECONDS)
        code, printed, err = second.finish()
    assert code == 0, err
    assert set(printed["statuses"].values()) == {"done"}
    for number in finished:
        assert executions(tally, f"shard-{number}") == 1
    for number in range(12):
        assert executions(tally, f"shard-{number}") <= 2
    assert sum(executions(tally, f"shard-{number}") for number in range(12)) <= 13
    plan = make_plan([graph("map", Probe())], open_store(prefix))
    assert plan.to_do() == []


def test_the_ranks_of_a_killed_driver_end_with_it(tmp_path: Path, tally: Path) -> None:
    prefix = tmp_path / "prefix"
    with Driver(prefix, "gang held", tally) as driver:
        wait_for(lambda: len(executing(tally, "rank-0") + executing(tally, "rank-1")) == 2)
        ranks = executing(tally, "rank-0") + executing(tally, "rank-1")
        driver.process.kill()
        driver.process.wait(timeout=10)
        wait_for(lambda: all(process_start(rank) is None for rank in ranks), 20)


def test_ctrl_c_ends_cleanly_releases_claims_and_the_next_run_starts_at_once(tmp_path: Path, tally: Path) -> None:
    prefix, go = tmp_path / "prefix", tmp_path / "go"
    with Driver(prefix, "held", tally, "--hold", str(go)) as first:
        wait_for(lambda: executions(tally, "leaf-held") == 1 and len(list(prefix.glob("_steps/*.json"))) == 1)
        first.process.send_signal(signal.SIGINT)
        interrupted = time.monotonic()
        code, printed, err = first.finish(20)
    assert code == 130, err
    assert "Traceback" not in err
    assert printed["interrupted"] is True
    assert time.monotonic() - interrupted < 5
    assert sorted(printed["statuses"].values()) == ["cancelled", "cancelled", "done"]
    claims = sorted(path.name for path in prefix.glob("_claims/*/*"))
    assert claims == ["000001.json", "000001.json", "000001.released"]
    assert list(prefix.glob("_failed/**/*.json")) == []
    go.touch()
    with Driver(prefix, "held", tally, "--hold", str(go)) as second:
        wait_for(lambda: executions(tally, "leaf-held") == 2, 10)
        code, _, err = second.finish()
    assert code == 0, err
    assert executions(tally, "leaf-quick") == 1


def test_ctrl_c_while_the_back_end_starts_runs_nothing(tmp_path: Path, tally: Path) -> None:
    prefix, starting = tmp_path / "prefix", tmp_path / "starting"
    with Driver(prefix, "diamond", tally, "--slow-start", str(starting)) as driver:
        wait_for(starting.exists)
        driver.process.send_signal(signal.SIGINT)
        code, _, err = driver.finish(20)
    assert code == 130, err
    assert "Traceback" not in err
    assert list(tally.iterdir()) == []
    for claim in prefix.glob("_claims/*/*.json"):
        assert claim.with_suffix(".released").exists()
