"""Gangs on Ray that lose what they stand on: a rank, or the process of the step itself."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from marin.execution import Artifact, FailureClass, Fleet, Runner, RunOptions, RunResult, Status, make_plan
from marin.execution.fleet import Restarts
from marin.storage import Store
from tests.execution.cluster.ray_graphs import meeting, shift_on
from tests.execution.driver import ray_backend
from tests.execution.graphs import Probe, executing, executions
from tests.execution.graphs import gang as plain_gang
from tests.storage.backends import wait_for

pytestmark = pytest.mark.ray


@pytest.fixture
def probe(tmp_path: Path) -> Probe:
    (tmp_path / "tally").mkdir()
    return Probe(str(tmp_path / "tally"), str(tmp_path / "go"))


def run(target: Artifact, store: Store) -> RunResult:
    return Runner(store, make_plan([target], store), RunOptions(retry_pause=0.1), ray_backend).run()


def test_a_step_whose_own_process_dies_gives_back_its_gangs_places_and_takes_them_again(
    store: Store, probe: Probe
) -> None:
    results: list[RunResult] = []
    running = threading.Thread(target=lambda: results.append(run(gang_of_two(probe), store)), daemon=True)
    running.start()
    wait_for(lambda: executions(probe.tally, "rank-0") == executions(probe.tally, "rank-1") == 1, 60)
    (process,) = executing(probe.tally, "meeting")
    os.kill(process, signal.SIGKILL)
    wait_for(lambda: executions(probe.tally, "rank-0") == executions(probe.tally, "rank-1") == 2, 60)
    Path(probe.hold).touch()
    running.join(30)
    assert [result.succeeded for result in results] == [True]


def gang_of_two(probe: Probe, deed: str = "") -> Artifact:
    """Two ranks take both processors of the tests' Ray."""
    return meeting(deed, probe).on(Fleet(workers=2))


def test_an_error_of_a_rank_whose_neighbour_is_gone_is_the_effect_and_the_gang_comes_back(
    store: Store, probe: Probe
) -> None:
    Path(probe.hold).touch()
    result = run(gang_of_two(probe, "rank 1 vanishes, rank 0 raises"), store)
    assert result.succeeded, result.failures
    assert executions(probe.tally, "rank-0") == executions(probe.tally, "rank-1") == 2


def test_an_error_of_a_rank_is_told_at_once_while_the_others_live(store: Store, probe: Probe) -> None:
    begun = []

    def note_beginning() -> None:
        wait_for(lambda: executions(probe.tally, "rank-1") == 1, 60)
        begun.append(time.monotonic())

    watching = threading.Thread(target=note_beginning, daemon=True)
    watching.start()
    (failed,) = run(plain_gang("bug", probe).on(Fleet(workers=2)), store).failures
    watching.join()
    assert time.monotonic() - begun[0] < 4
    assert failed.failure is not None
    assert (failed.failure.kind, failed.failure.message) == (FailureClass.error, "a bug of rank 1")


def events(store: Store) -> list[dict[str, Any]]:
    """What happened to gangs in all runs of a prefix, in order."""
    segments = [info.key for info in store.list("_runs") if "/events-" in info.key]
    lines = [json.loads(line) for key in segments for line in store.read(key).decode().splitlines()]
    return sorted((line for line in lines if line["event"].startswith("gang.")), key=lambda line: line["time"])


def alive(tally: str, what: str) -> list[int]:
    """Processes that note it, and still are there."""
    return [process for process in executing(tally, what) if Path(f"/proc/{process}").exists()]


def test_a_stall_a_notice_and_a_kill_each_bring_the_gang_back_and_its_only_node_is_taken_back(
    store: Store, probe: Probe
) -> None:
    fleet = Fleet(workers=2, restarts=Restarts(preemptions=2, stalls=1, faults_of_a_node=1))
    results: list[RunResult] = []
    target = shift_on(fleet, "stalls once", (), probe)
    running = threading.Thread(target=lambda: results.append(run(target, store)), daemon=True)
    running.start()

    def lives(count: int) -> bool:
        return executions(probe.tally, "2-rank-0@") == executions(probe.tally, "2-rank-1@") == count

    wait_for(lambda: lives(2), 60)  # the first stalled
    os.kill(alive(probe.tally, "2-rank-1@")[0], signal.SIGTERM)
    wait_for(lambda: lives(3), 60)
    assert executions(probe.tally, "saved-2") == 2  # both, although one was asked
    os.kill(alive(probe.tally, "2-rank-1@")[0], signal.SIGKILL)
    wait_for(lambda: lives(4), 60)
    Path(probe.hold).touch()
    running.join(30)
    assert [result.succeeded for result in results] == [True], results[0].failures
    happened = events(store)
    assert Counter(line["event"] for line in happened) == {
        "gang.restarted": 3,
        "gang.stopping": 1,
        "gang.node_avoided": 1,
        "gang.readmitted": 1,
    }
    assert [line["failure"] for line in happened if line["event"] == "gang.restarted"] == [
        "stalled",
        "preempted",
        "preempted",
    ]


def test_an_interrupted_run_lets_its_gang_save_and_waits_no_longer_than_that(store: Store, probe: Probe) -> None:
    from marin.execution.cluster.backend import RayBackend

    backend = RayBackend()
    results: list[RunResult] = []
    plan = make_plan([shift_on(Fleet(workers=2, stop_seconds=30), "", (), probe)], store)
    runner = Runner(store, plan, RunOptions(), lambda: backend)
    running = threading.Thread(target=lambda: results.append(runner.run()), daemon=True)
    running.start()
    wait_for(lambda: executions(probe.tally, "2-rank-0@") == executions(probe.tally, "2-rank-1@") == 1, 60)
    asked = time.monotonic()
    backend.stop("the run is interrupted")
    assert time.monotonic() - asked < 20
    running.join(10)
    assert executions(probe.tally, "saved-2") == 2
    assert executions(probe.tally, "2-rank-0@") == 1
    (step,) = results[0].steps
    assert step.status is Status.cancelled
    assert step.failure is not None
    assert "the run is interrupted" in step.failure.message
    assert [info.key for info in store.list("_claims") if info.key.endswith(".released")]
