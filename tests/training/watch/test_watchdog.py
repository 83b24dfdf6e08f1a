"""A rank that hangs: all ranks' stacks reach the store, the processes end by themselves, and the next life finishes."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from marin.execution import Stalled
from marin.parallel.config import ParallelPlan
from marin.training.watch.config import StallBudgets, WatchConfig
from marin.training.watch.watchdog import EXIT_CODE, Watchdog
from tests.checkpoint.holder import holder
from tests.training.rank_pool import shared_pool
from tests.training.toy import ToyTask, toy_training, train_toy
from tests.training.watch.disturbances import Dies, Hangs
from tests.training.watch.processes import rank_variables, started

pytestmark = pytest.mark.slow

SECONDS = 1.5
BUDGETS = StallBudgets(startup_minutes=2, step_minutes=SECONDS / 60, together_seconds=20)
WATCH = WatchConfig(stall=BUDGETS, live_seconds=0.2)


def _rank(variables: dict[str, str], task: ToyTask) -> None:
    os.environ.update(variables)
    train_toy(task)


def test_a_rank_that_hangs_is_ended_with_all_stacks_in_the_store_and_the_restart_finishes(tmp_path: Path) -> None:
    task = ToyTask(str(tmp_path), plan=ParallelPlan(dp_shard=2, ep=2), watched=True, training=toy_training(watch=WATCH))
    hanging = replace(task, hooks=(Hangs(step=7, rank=1),))
    processes = [started(_rank, variables, hanging) for variables in rank_variables(2)]
    processes[0].join(150)
    first_ended = time.monotonic()
    processes[1].join(150)
    assert time.monotonic() - first_ended < 10, "they end together"
    codes = {process.exitcode for process in processes}
    assert EXIT_CODE in codes
    assert codes <= {EXIT_CODE, 1}, "the collective of the other breaks as soon as the first has left"

    state = holder(task.prefix).state
    reports = {file.name: state.store.read(file.key).decode() for file in state.find("stalls/*.txt")}
    assert sorted(name[: len("stalls/step-00000007-rank-0000")] for name in reports) == [
        "stalls/step-00000007-rank-0000",
        "stalls/step-00000007-rank-0001",
    ]
    waiting, asleep = (reports[name] for name in sorted(reports))
    assert "disturbances.py" in asleep
    assert "time.sleep(600)" in asleep
    assert "time.sleep(600)" not in waiting
    assert "in agreed_batch" in waiting, "the main thread is in the sum over the batch that rank 1 never reaches"
    for report in (waiting, asleep):
        assert "thread MainThread" in report
        assert "gloo:all_reduce" in report, "torch's record of the last collectives"
        assert "resident_gb" in report
    assert "outside the expert exchange" in waiting

    resumed = shared_pool().run(train_toy, replace(task, epoch=2), 2)
    assert [line["step"] for line in resumed[0].lines] == list(range(1, 13))


def test_a_rank_that_goes_on_is_left_alone_and_a_frozen_process_is_not_taken_for_stalled(tmp_path: Path) -> None:
    task = ToyTask(str(tmp_path), plan=ParallelPlan(), watched=True, training=toy_training(watch=WATCH))
    process = started(_slow, task)
    assert process.pid is not None
    live = holder(task.prefix).state
    until = time.monotonic() + 150
    while not live.find("live/*.jsonl") and time.monotonic() < until:
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(2 * SECONDS)
    os.kill(process.pid, signal.SIGCONT)
    process.join(150)
    assert process.exitcode == 0
    assert not live.find("stalls/*")


def test_a_stall_is_handed_to_the_gang_with_its_class_and_an_evaluation_has_its_own_budget(tmp_path: Path) -> None:
    given: list[BaseException] = []
    ended = threading.Event()

    def give_up(error: BaseException) -> None:
        given.append(error)
        ended.set()

    budgets = StallBudgets(
        startup_minutes=1, step_minutes=0.2 / 60, validation_minutes=1.0 / 60, checkpoint_minutes=1, together_seconds=0
    )
    watchdog = Watchdog(budgets, holder(str(tmp_path)).state, rank=0, world_size=1, life="x", give_up=give_up)
    loop: Any = SimpleNamespace(
        clock=SimpleNamespace(current="validation", changes=1),
        step=4,
        trainee=SimpleNamespace(model=SimpleNamespace(blocks=())),
    )
    watchdog.start(loop)
    watchdog.begin()
    time.sleep(0.5)
    assert not given, "the first step is not done: a start has a minute"
    watchdog.after_update(1)
    begun = time.monotonic()
    assert ended.wait(20)
    watchdog.close()
    assert time.monotonic() - begun > 0.4, "an evaluation has more time than a step"
    (error,) = given
    assert isinstance(error, Stalled)
    assert "validation of step 5" in str(error)


def _slow(task: ToyTask) -> None:
    train_toy(replace(task, hooks=(Dies(step=99, pause=0.3),)))
