"""A rank that hangs: all ranks' stacks reach the store, the processes end by themselves, and the next life finishes."""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from marin.parallel.config import ParallelPlan
from marin.training.watch.config import StallBudgets, WatchConfig
from tests.checkpoint.holder import holder
from tests.training.rank_pool import VARIABLES, shared_pool
from tests.training.toy import ToyTask, toy_training, train_toy
from tests.training.watch.disturbances import Hangs

SECONDS = 1.5
BUDGETS = StallBudgets(startup_minutes=2, step_minutes=SECONDS / 60, together_seconds=20)
WATCH = WatchConfig(stall=BUDGETS, live_seconds=0.2)


def _rank(variables: dict[str, str], task: ToyTask) -> None:
    os.environ.update(variables)
    train_toy(task)


def test_a_rank_that_hangs_is_ended_with_all_stacks_in_the_store_and_the_restart_finishes(tmp_path: Path) -> None:
    task = ToyTask(
        str(tmp_path), plan=ParallelPlan(dp_shard=2, ep=2), watched=True, training=toy_training(watch=WATCH)
    )
    hanging = replace(task, hooks=(Hangs(step=7, rank=1),))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    processes = []
    for rank in range(2):
        values = map(str, (rank, 2, rank, 2, "127.0.0.1", port))
        processes.append(context.Process(target=_rank, args=(dict(zip(VARIABLES, values, strict=True)), hanging)))
        processes[-1].start()
    for process in processes:
        process.join(90)
    assert [process.exitcode for process in processes] == [70, 70]

    state = holder(task.prefix).state
    reports = {file.name: state.store.read(file.key).decode() for file in state.find("stalls/*.txt")}
    assert sorted(name[: len("stalls/step-00000007-rank-0000")] for name in reports) == [
        "stalls/step-00000007-rank-0000",
        "stalls/step-00000007-rank-0001",
    ]
    waiting, asleep = (reports[name] for name in sorted(reports))
    assert "disturbances.py" in asleep and "time.sleep(600)" in asleep
    assert "time.sleep(600)" not in waiting
    assert "in agreed_batch" in waiting, "the main thread is in the sum over the batch that rank 1 never reaches"
    for report in (waiting, asleep):
        assert "thread MainThread" in report
        assert "gloo:all_reduce" in report, "torch's record of the last collectives"
        assert "resident_gb" in report
    assert '"entered"' not in asleep
    assert "outside the expert exchange" in waiting

    resumed = shared_pool().run(train_toy, replace(task, epoch=2), 2)
    assert [line["step"] for line in resumed[0].lines] == list(range(1, 13))


def test_a_rank_that_goes_on_is_left_alone_and_a_frozen_process_is_not_taken_for_stalled(tmp_path: Path) -> None:
    import signal

    task = ToyTask(str(tmp_path), plan=ParallelPlan(), watched=True, training=toy_training(watch=WATCH))
    process: Any = multiprocessing.get_context("spawn").Process(target=_slow, args=(task,))
    process.start()
    live = holder(task.prefix).state
    until = time.monotonic() + 90
    while not live.find("live/*.jsonl") and time.monotonic() < until:
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(2 * SECONDS)
    os.kill(process.pid, signal.SIGCONT)
    process.join(90)
    assert process.exitcode == 0
    assert not live.find("stalls/*")


def _slow(task: ToyTask) -> None:
    from tests.training.watch.disturbances import Dies

    train_toy(replace(task, hooks=(Dies(step=99, pause=0.3),)))
