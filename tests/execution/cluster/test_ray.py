"""The back end on Ray: shards, gangs, and what is lost on the way."""

from __future__ import annotations

import importlib.metadata
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from marin.execution import Artifact, FailureClass, Fleet, Runner, RunOptions, RunResult, StepError, make_plan
from marin.execution.records import materialise_record
from marin.execution.running.progress import Progress
from marin.storage import Store, open_store
from tests.execution.driver import Driver, ray_backend
from tests.execution.graphs import (
    MapConfig,
    Probe,
    diamond,
    executing,
    executions,
    failing,
    gang,
    greedy,
    joined,
    squares,
)
from tests.storage.backends import wait_for

pytestmark = pytest.mark.ray


class Watcher:
    """Keeps what a run shows."""

    def __init__(self) -> None:
        self.shown: list[dict[str, Any]] = []

    def changed(self, progress: Progress, text: str = "") -> None:
        """Ignore."""

    def advanced(self, progress: Progress) -> None:
        """Keep a progress message."""
        self.shown.append(progress.latest)


def run(target: Artifact, store: Store, watcher: Watcher | None = None) -> RunResult:
    plan = make_plan([target], store)
    return Runner(store, plan, RunOptions(retry_pause=0.1), ray_backend, watcher).run()


def result_of(result: RunResult, store: Store) -> Any:
    assert result.succeeded, [p.failure for p in result.steps]
    step = result.steps[-1].step
    assert step.record is not None
    return materialise_record(store, step.record, step.call.step.result_type)


def test_a_graph_runs_on_ray_in_other_processes(store: Store, probe: Probe) -> None:
    found = result_of(run(diamond(probe), store), store)
    assert found.text == found.read("text.txt").decode() == "A+B"
    assert make_plan([diamond(probe)], store).to_do() == []


def test_shards_run_on_ray_and_come_back_in_order_with_their_files_and_progress(store: Store, probe: Probe) -> None:
    watcher = Watcher()
    found = result_of(run(squares("ray", MapConfig(shards=7), probe), store, watcher), store)
    assert found.values == (0, 1, 4, 9, 16, 25, 36)
    assert [found.read(name) for name in found.names("part-*")] == [str(n * n).encode() for n in range(7)]
    assert {(one["total"], one["unit"]) for one in watcher.shown} == {(7, "shards")}
    assert watcher.shown[-1]["done"] == 7


def test_a_gang_of_two_ranks_is_one_world(store: Store, probe: Probe) -> None:
    found = result_of(run(gang("plain", probe).on(Fleet(workers=2)), store), store)
    assert found.values == (0, 10)
    assert [found.read(name) for name in found.names()] == [b"2", b"2"]
    (one,), (other,) = executing(probe.tally, "rank-0"), executing(probe.tally, "rank-1")
    assert one != other


def test_a_killed_rank_brings_the_whole_gang_back_and_the_step_completes(store: Store, probe: Probe) -> None:
    found = result_of(run(gang("killed once", probe).on(Fleet(workers=2)), store), store)
    assert found.values == (0, 10)
    assert executions(probe.tally, "rank-1") == 2
    assert executions(probe.tally, "gang-killed once") == 1


def test_an_error_of_a_ranks_own_code_is_told_and_not_tried_again(store: Store, probe: Probe) -> None:
    result = run(gang("bug", probe).on(Fleet(workers=2)), store)
    failure = result.failures[0].failure
    assert failure is not None
    assert (failure.kind, failure.error, failure.message) == (
        FailureClass.error,
        "ZeroDivisionError",
        "a bug of rank 1",
    )
    assert "rank_entry" in failure.trace
    assert executions(probe.tally, "rank-1") == 1


def test_a_step_whose_worker_is_killed_is_tried_again(store: Store, probe: Probe) -> None:
    result = run(failing("vanish once", None, probe), store)
    assert result.succeeded
    assert executions(probe.tally, "failing-vanish once") == 2


def test_a_request_that_no_node_can_meet_says_at_once_what_is_missing(store: Store, probe: Probe) -> None:
    started = time.monotonic()
    target = joined(
        (greedy(probe), failing("fine", None, probe)),
        probe,
    )
    result = run(target, store)
    many = run(gang("plain", probe).on(Fleet(workers=64)), store)
    hungry = run(squares("hungry", MapConfig(shards=2, memory_gb=10_000), probe), store)
    assert time.monotonic() - started < 45
    greedy_says, gang_says, shard_says = (
        one.failures[0].failure.message for one in (result, many, hungry) if one.failures[0].failure is not None
    )
    assert "asks for 4096 CPU (the largest node has 2 CPU)" in greedy_says
    assert "GB of memory" in greedy_says
    assert "64 CPU in all; the cluster has 2" in gang_says
    assert "1e+04 GB of memory" in shard_says
    assert executions(probe.tally, "greedy") == executions(probe.tally, "rank-0") == 0
    assert executions(probe.tally, "failing-fine") == 1


@pytest.mark.slow
def test_a_killed_and_an_interrupted_driver_on_ray_are_followed_without_redoing_shards(
    tmp_path: Path, probe: Probe
) -> None:
    prefix = tmp_path / "prefix"

    def finished() -> set[int]:
        marks = prefix.glob("test/squares/*/state/*/map00/*/done.json")
        return {int(path.parent.name.split("-")[0]) for path in marks}

    with Driver(prefix, "map", Path(probe.tally), "--ray") as first:
        wait_for(lambda: len(finished()) >= 2, 90)
        first.process.kill()
        first.process.wait(timeout=30)
    with Driver(prefix, "map", Path(probe.tally), "--ray") as second:
        wait_for(lambda: executions(probe.tally, "squares-slow") == 2, 60)
        before = finished()
        wait_for(lambda: len(finished()) > len(before), 60)
        second.process.send_signal(signal.SIGINT)
        code, printed, err = second.finish(30)
    assert code == 130, err
    assert set(printed["statuses"].values()) == {"cancelled"}
    assert "Traceback" not in err
    done = finished()
    with Driver(prefix, "map", Path(probe.tally)) as third:
        code, _, err = third.finish()
    assert code == 0, err
    for number in done - {max(done)}:
        assert executions(probe.tally, f"shard-{number}") <= 2
    assert sum(executions(probe.tally, f"shard-{number}") for number in range(12)) <= 12 + 2 * 3


def log_of(store: Store, step: str) -> str:
    (key,) = [info.key for info in store.list("_runs") if f"/logs/{step}-" in info.key]
    return store.read(key).decode()


def test_every_shard_and_every_rank_has_its_log_in_that_of_the_step(store: Store, probe: Probe) -> None:
    assert run(squares("x", MapConfig(shards=3), probe), store).succeeded
    assert all(f"shard {number} speaks" in log_of(store, "test.squares") for number in range(3))
    assert run(gang("plain", probe).on(Fleet(workers=2)), store).succeeded
    assert all(f"rank {rank} speaks" in log_of(store, "test.gang") for rank in range(2))


def test_a_task_that_a_worker_cannot_read_is_no_lost_worker() -> None:
    from ray.exceptions import RaySystemError, RayTaskError, WorkerCrashedError

    from marin.execution.cluster.failures import ray_failure

    trace = "Traceback\nModuleNotFoundError: No module named 'only_here'"
    failure = ray_failure(RayTaskError("step", trace, RaySystemError(trace)).as_instanceof_cause(), "documents/clean")
    assert failure.kind is FailureClass.error
    assert "documents/clean cannot read its task" in failure.message and "'only_here'" in failure.message
    assert ray_failure(RaySystemError("gone"), "documents/clean").kind is FailureClass.preempted
    assert ray_failure(WorkerCrashedError(), "documents/clean").kind is FailureClass.preempted


@pytest.mark.parametrize("what", ["step", "shards", "gang"])
def test_a_node_that_came_later_looks_at_itself_before_it_works(what: str, store: Store, probe: Probe) -> None:
    from marin.execution.cluster.backend import RayBackend
    from marin.execution.cluster.nodes import Standard

    class Elsewhere(RayBackend):
        """As if the driver had another version, and had not looked at this node."""

        def __init__(self) -> None:
            super().__init__()
            self._standard = Standard({"tokenizers": "9.9.9", "gcsfs": "9.9.9"})

    target = {
        "step": failing("fine", None, probe),
        "shards": squares("x", MapConfig(shards=1), probe),
        "gang": gang("plain", probe),
    }[what]
    (failed,) = Runner(store, make_plan([target], store), RunOptions(), Elsewhere).run().failures
    assert failed.failure is not None and failed.failure.expected
    here = importlib.metadata.version("tokenizers")
    assert f"the node {socket.gethostname()} has tokenizers {here}, and the driver has 9.9.9" in failed.failure.message
    assert "gcsfs" not in failed.failure.message
    assert list(Path(probe.tally).iterdir()) == []


def test_a_node_that_came_later_and_does_not_see_the_prefix_refuses_to_work(
    store: Store, probe: Probe, tmp_path: Path
) -> None:
    from marin.execution.cluster.backend import RayBackend
    from marin.execution.cluster.nodes import Standard

    class Elsewhere(RayBackend):
        """As if the driver had not looked at this node."""

        def __init__(self) -> None:
            super().__init__()
            self._standard = Standard({"python": f"{sys.version_info.major}.{sys.version_info.minor}"})

    runner = Runner(store, make_plan([failing("fine", None, probe)], store), RunOptions(), Elsewhere)
    runner.worker_store = open_store(tmp_path / "another folder of that name")
    (failed,) = runner.run().failures
    assert failed.failure is not None and failed.failure.expected
    assert f"and the node {socket.gethostname()} cannot see it: use a bucket" in failed.failure.message
    assert list(Path(probe.tally).iterdir()) == []


def test_a_cluster_tells_at_once_whose_token_it_refuses(ray_cluster: None, tmp_path: Path) -> None:
    import ray

    from marin.execution.cluster.address import split_address
    from marin.execution.cluster.token import refused

    host, port = split_address(ray.get_runtime_context().gcs_address)
    token = (Path.home() / ".ray/auth_token").read_text()
    (tmp_path / "right").write_text(f"{token}\n")
    mode = {"RAY_AUTH_MODE": "token"}
    assert refused(host, port, mode, Path.home()) is None
    assert refused(host, port, {**mode, "RAY_AUTH_TOKEN": token}, tmp_path) is None
    assert refused(host, port, {**mode, "RAY_AUTH_TOKEN_PATH": str(tmp_path / "right")}, tmp_path) is None
    started = time.monotonic()
    wrong = refused(host, port, {**mode, "RAY_AUTH_TOKEN": "another"}, Path.home())
    unsent = refused(host, port, {}, Path.home())
    absent = refused(host, port, mode, tmp_path)
    assert time.monotonic() - started < 5
    assert wrong is not None and "the one in RAY_AUTH_TOKEN is another" in wrong
    assert unsent is not None and "set RAY_AUTH_MODE=token, and the one in" in unsent
    assert absent is not None and "this machine has none" in absent
    assert all(token not in text for text in (wrong, unsent, absent))


def test_an_address_of_rays_client_is_refused_with_the_one_to_give() -> None:
    from marin.execution.cluster.start import join

    with pytest.raises(StepError, match=r"give the head's own address, such as head\.example:6379"):
        join("ray://head.example:10001")
