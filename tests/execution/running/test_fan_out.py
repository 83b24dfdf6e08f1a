"""Shards and ranks without Ray."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from marin.execution import (
    FailureClass,
    Fleet,
    StepError,
    current_run,
    materialise,
    step,
)
from marin.storage import Store
from tests.execution.graphs import (
    MapConfig,
    Probe,
    Text,
    executions,
    gang,
    squares,
)
from tests.execution.running.runs import failure_of, run


def test_a_map_returns_results_in_order_and_its_shards_files_are_outputs(tmp_path: Path, probe: Probe) -> None:
    found = materialise(squares("all", MapConfig(shards=5), probe), str(tmp_path / "prefix"))
    assert found.values == (0, 1, 4, 9, 16)
    assert found.names() == [f"part-{number:03d}.txt" for number in range(5)]
    assert found.read("part-003.txt") == b"9"
    record = found._binding.record
    assert [(flow.unit, flow.read, flow.kept) for flow in record.flows] == [("numbers", 5, 5)]


def test_an_empty_map_is_an_empty_result(tmp_path: Path, probe: Probe) -> None:
    assert materialise(squares("none", MapConfig(shards=0), probe), str(tmp_path / "prefix")).values == ()


def test_a_map_needs_a_step_that_fans_out(tmp_path: Path) -> None:
    @step("runner/narrow", version="1")
    def narrow() -> Text:
        current_run().map(len, ["a"])
        return Text(text="x")

    with pytest.raises(StepError, match="fans_out=True"):
        materialise(narrow(), str(tmp_path))


def test_a_gang_without_ray_is_one_process_for_each_worker(tmp_path: Path, probe: Probe) -> None:
    found = materialise(gang("plain", probe).on(Fleet(workers=2)), str(tmp_path / "prefix"))
    assert found.values == (0, 10)
    assert [found.read(name) for name in found.names()] == [b"2", b"2"]


def test_an_error_in_a_rank_ends_the_gang_and_the_step_at_once(local_store: Store, probe: Probe) -> None:
    started = time.monotonic()
    failure = failure_of(run(gang("bug", probe).on(Fleet(workers=2)), local_store))
    assert (failure.kind, failure.error, failure.message) == (
        FailureClass.error,
        "ZeroDivisionError",
        "a bug of rank 1",
    )
    assert time.monotonic() - started < 30
    assert executions(probe.tally, "rank-1") == 1


def test_a_rank_that_leaves_by_itself_ends_the_step_at_once(local_store: Store, probe: Probe) -> None:
    started = time.monotonic()
    failure = failure_of(run(gang("leaves", probe).on(Fleet(workers=2)), local_store))
    assert time.monotonic() - started < 45
    assert failure.kind is FailureClass.error
    assert "rank 1 ended with exit code 3 and without a result" in failure.message
    assert executions(probe.tally, "rank-1") == 1


def test_a_killed_rank_brings_the_gang_back_with_its_state(local_store: Store, probe: Probe) -> None:
    result = run(gang("killed once", probe).on(Fleet(workers=2)), local_store)
    assert result.succeeded, result.failures
    assert executions(probe.tally, "rank-1") == 2
    assert [info.key for info in local_store.list("test/gang") if info.key.endswith("rank-1-was-here")]
