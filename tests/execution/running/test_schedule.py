"""Which steps may start, and when."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from marin.execution.running.progress import Progress, Status
from marin.execution.running.schedule import Schedule


def node(name: str, *above: Progress, inline: bool = False) -> Progress:
    """A step of that name below others."""
    call = SimpleNamespace(step=SimpleNamespace(inline=inline))
    step = SimpleNamespace(display=name, call=call, upstream=[one.step for one in above])
    return Progress(cast(Any, step))


def names(steps: list[Progress]) -> list[str]:
    return [progress.step.display for progress in steps]


def started(schedule: Schedule) -> list[Progress]:
    """All steps that may start now."""
    found = []
    while (progress := schedule.next()) is not None:
        progress.status = Status.running
        found.append(progress)
    return found


def end(schedule: Schedule, progress: Progress, status: Status = Status.done) -> list[str]:
    progress.status = status
    return names(schedule.ended(progress))


def test_a_step_starts_when_the_last_of_its_upstreams_is_done() -> None:
    a, b = node("a"), node("b")
    both = node("both", a, b)
    schedule = Schedule([a, b, both], 8, 8)
    assert names(started(schedule)) == ["a", "b"]
    assert end(schedule, a) == [] and started(schedule) == []
    end(schedule, b, Status.cached)
    assert started(schedule) == [both]
    assert not schedule.is_over
    end(schedule, both)
    assert schedule.is_over


def test_no_more_steps_are_at_work_than_there_is_room_for_and_fewer_inline_ones() -> None:
    steps = [node(f"small{n}", inline=True) for n in range(5)] + [node(f"large{n}") for n in range(5)]
    schedule = Schedule(steps, 3, 1)
    first = started(schedule)
    assert sorted(names(first)) == ["large0", "large1", "small0"]
    end(schedule, first[0])
    assert sum(progress.step.call.step.inline for progress in started(schedule)) <= 1
    alone = Schedule([node(f"s{n}", inline=True) for n in range(4)], 1, 1)
    assert len(started(alone)) == 1


def test_a_broken_step_blocks_all_below_it_and_nothing_else() -> None:
    a, b = node("a"), node("b")
    below, far, other = node("below", a), None, node("other", b)
    far = node("far", below, other)
    schedule = Schedule([a, b, below, other, far], 8, 8)
    started(schedule)
    assert end(schedule, a, Status.failed) == ["below", "far"]
    assert (below.blocked_by, far.blocked_by) == ("a", "below")
    end(schedule, b)
    assert started(schedule) == [other]
    end(schedule, other)
    assert schedule.is_over and far.status is Status.blocked


def test_fail_fast_blocks_what_has_not_begun_and_lets_the_rest_end() -> None:
    a, b, c = node("a"), node("b"), node("c")
    below = node("below", b)
    schedule = Schedule([a, b, c, below], 2, 2, fail_fast=True)
    assert names(started(schedule)) == ["a", "b"]
    assert sorted(end(schedule, a, Status.failed)) == ["below", "c"]
    assert {c.blocked_by, below.blocked_by} == {"--fail-fast"}
    assert started(schedule) == [] and not schedule.is_over
    end(schedule, b)
    assert started(schedule) == [] and schedule.is_over


def test_a_step_that_another_run_has_is_looked_at_again_when_its_time_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr("marin.execution.running.schedule.time.monotonic", lambda: now[0])
    a = node("a")
    below = node("below", a)
    schedule = Schedule([a, below], 8, 8)
    started(schedule)
    a.poll_at = 101.0
    assert end(schedule, a, Status.waiting) == []
    assert schedule.next() is None and not schedule.is_over
    now[0] = 101.0
    assert started(schedule) == [a]
    end(schedule, a, Status.cached)
    assert started(schedule) == [below]


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs_come_to_an_end_in_an_order_that_respects_them(seed: int) -> None:
    draw = random.Random(seed)
    steps: list[Progress] = []
    for number in range(60):
        above = draw.sample(steps, min(len(steps), draw.randrange(4)))
        steps.append(node(str(number), *above, inline=draw.random() < 0.5))
    by_step = {id(progress.step): progress for progress in steps}
    schedule = Schedule(steps, 5, draw.choice((1, 5)))
    at_work: list[Progress] = []
    while not schedule.is_over:
        for progress in started(schedule):
            assert all(by_step[id(up)].status is Status.done for up in progress.step.upstream)
            at_work.append(progress)
        assert 0 < len(at_work) <= 5
        ending = at_work.pop(draw.randrange(len(at_work)))
        end(schedule, ending, Status.failed if draw.random() < 0.05 else Status.done)
    for progress in steps:
        broken = [up for up in progress.step.upstream if by_step[id(up)].status in (Status.failed, Status.blocked)]
        assert (progress.status is Status.blocked) == bool(broken)
