"""When workers that grow are replaced."""

from __future__ import annotations

from marin.execution.cluster.worker_memory import WorkerMemory

MB = 1_000_000


def simulate(leak: int, base: int, limit: int, shards: int, workers: int = 2) -> tuple[int, int]:
    """(most that a worker held, workers that were started) when shards are dealt to workers in turn.

    A worker ends when it has been called through one function as often as that function allows.
    """
    memory = WorkerMemory()
    held = dict.fromkeys(range(workers), base)
    calls: dict[tuple[int, int], int] = {}
    started, peak = workers, 0
    for number in range(shards):
        worker = sorted(held)[number % workers]
        allowed = memory.calls_of_next()
        held[worker] += leak
        peak = max(peak, held[worker])
        memory.weigh(worker, held[worker], limit, allowed)
        calls[worker, allowed] = calls.get((worker, allowed), 0) + 1
        if allowed and calls[worker, allowed] == allowed:
            del held[worker]
            held[started] = base
            started += 1
    return peak, started


def test_workers_of_a_leaking_function_stay_near_their_limit_and_are_not_replaced_more_often_than_that_takes() -> None:
    leak, base, limit = 64 * MB, 200 * MB, 1000 * MB
    peak, started = simulate(leak, base, limit, shards=400)
    assert peak <= limit + 2 * leak
    fit = (limit - base) // leak
    assert 400 / fit <= started <= 2 * 400 / fit + 4


def test_a_function_that_fills_a_worker_at_once_gets_a_fresh_one_each_time() -> None:
    leak, base = 600 * MB, 200 * MB
    peak, started = simulate(leak, base, limit=1000 * MB, shards=50)
    assert peak == base + 3 * leak  # the first shard, the one that showed it, and the one that ended the worker
    assert started >= 45


def test_a_function_that_keeps_nothing_keeps_its_workers_however_low_the_limit() -> None:
    assert simulate(leak=0, base=200 * MB, limit=100 * MB, shards=1000) == (200 * MB, 2)


def test_a_limit_below_what_a_worker_needs_at_least_leaves_it_some_room() -> None:
    peak, started = simulate(leak=10 * MB, base=200 * MB, limit=50 * MB, shards=200)
    assert peak <= 1.5 * 210 * MB + 20 * MB
    assert started < 60
