"""Which shard is started when, on a clock of the test's own."""

from __future__ import annotations

import dataclasses

import pytest

from marin.execution.cluster.shard_schedule import ShardPolicy, ShardSchedule
from marin.execution.failures import RETRY_BUDGET, FailureClass
from marin.execution.running.tasks import ShardTask

LOST, MEMORY, ERROR = FailureClass.preempted, FailureClass.memory, FailureClass.error
POLICY = ShardPolicy(
    straggler_factor=3.0, straggler_seconds=30.0, pause_seconds=1.0, pause_limit=60.0, worker_memory_gb=None
)


def schedule(count: int) -> ShardSchedule:
    return ShardSchedule([ShardTask(index, f"key-{index}", abs, index, None) for index in range(count)], POLICY)


def started(one: ShardSchedule, now: float) -> list[int]:
    """All that may start now."""
    found = []
    while (task := one.next(now)) is not None:
        found.append(task.index)
    return found


def begun(count: int) -> ShardSchedule:
    """All shards at work since the moment 0."""
    one = schedule(count)
    for index in started(one, 0.0):
        one.began(index, 0.0)
    return one


def lagging(one: ShardSchedule, now: float) -> int | None:
    task = one.straggler(now)
    return task.index if task is not None else None


def test_shards_start_in_order() -> None:
    assert started(schedule(5), 0.0) == [0, 1, 2, 3, 4]


def test_a_lost_shard_waits_longer_each_time_while_the_others_start() -> None:
    one = schedule(3)
    pauses = []
    assert started(one, 0.0) == [0, 1, 2]
    now = 10.0
    for _ in range(9):
        one.began(0, now)
        assert one.failed(0, LOST, now)
        assert one.wait(now, 1000.0) == pytest.approx(one.wait(now, 10_000.0))
        pause = one.wait(now, 1000.0)
        assert started(one, now + pause - 0.01) == []
        now += pause
        pauses.append(pause)
        assert started(one, now) == [0]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]


@pytest.mark.parametrize(("kind", "times"), [(LOST, RETRY_BUDGET[LOST]), (MEMORY, RETRY_BUDGET[MEMORY]), (ERROR, 0)])
def test_each_class_of_failure_has_its_own_budget_for_each_shard(kind: FailureClass, times: int) -> None:
    one = schedule(2)
    started(one, 0.0)
    now = 0.0
    for _ in range(times):
        assert one.failed(0, kind, now)
        now += 100.0
        assert started(one, now) == [0]
    assert one.failed(1, LOST, now)
    assert not one.failed(0, kind, now)


def test_a_shard_is_started_again_when_it_ran_three_times_the_median_and_half_a_minute() -> None:
    one = begun(4)
    for index, seconds in ((0, 10.0), (1, 12.0), (2, 30.0)):
        one.finished(index, seconds)
    assert lagging(one, 36.0) is None
    assert lagging(one, 36.1) == 3
    assert lagging(one, 1000.0) is None


def test_short_shards_are_not_started_again_before_half_a_minute() -> None:
    one = begun(2)
    one.finished(0, 1.0)
    assert lagging(one, 30.0) is None
    assert lagging(one, 30.1) == 1


def test_no_shard_is_started_again_while_one_waits_for_its_first_worker_or_for_its_pause() -> None:
    one = schedule(4)
    started(one, 0.0)
    for index in range(3):
        one.began(index, 0.0)
    one.finished(0, 1.0)
    assert lagging(one, 1000.0) is None
    one.began(3, 1000.0)
    assert one.failed(3, LOST, 1000.0)
    assert lagging(one, 1000.5) is None
    assert started(one, 1001.0) == [3]
    one.began(3, 1001.0)
    assert {lagging(one, 1001.5), lagging(one, 1001.5)} == {1, 2}


def test_no_shard_is_started_again_before_any_has_finished() -> None:
    one = begun(2)
    assert lagging(one, 10_000.0) is None


def test_a_lost_copy_is_forgiven_while_the_other_runs_and_counts_when_it_was_the_last() -> None:
    one = begun(2)
    one.finished(0, 1.0)
    assert lagging(one, 100.0) == 1
    for _ in range(RETRY_BUDGET[LOST]):
        assert one.failed(1, LOST, 100.0)
        assert started(one, 100.0) == []
        assert one.failed(1, LOST, 100.0)
        assert started(one, 200.0) == [1]
        one.began(1, 200.0)
        assert lagging(one, 300.0) == 1
    one.finished(1, 5.0)
    assert not one.unfinished


def test_an_error_of_its_own_code_in_one_copy_ends_the_shard() -> None:
    one = begun(2)
    one.finished(0, 1.0)
    assert lagging(one, 100.0) == 1
    assert not one.failed(1, ERROR, 101.0)


def test_a_policy_is_a_plain_value() -> None:
    assert dataclasses.replace(POLICY) == ShardPolicy()
