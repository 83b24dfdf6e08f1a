"""Gangs on Ray that lose what they stand on: a rank, or the process of the step itself."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from marin.execution import Artifact, FailureClass, Fleet, Runner, RunOptions, RunResult, make_plan
from marin.storage import Store
from tests.execution.cluster.ray_graphs import meeting
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
    wait_for(lambda: executions(probe.tally, "rank-0") == executions(probe.tally, "rank-1") == 1, 30)
    (process,) = executing(probe.tally, "meeting")
    os.kill(process, signal.SIGKILL)
    wait_for(lambda: executions(probe.tally, "rank-0") == executions(probe.tally, "rank-1") == 2, 30)
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
        wait_for(lambda: executions(probe.tally, "rank-1") == 1, 30)
        begun.append(time.monotonic())

    watching = threading.Thread(target=note_beginning, daemon=True)
    watching.start()
    (failed,) = run(plain_gang("bug", probe).on(Fleet(workers=2)), store).failures
    watching.join()
    assert time.monotonic() - begun[0] < 4
    assert failed.failure is not None
    assert (failed.failure.kind, failed.failure.message) == (FailureClass.error, "a bug of rank 1")
