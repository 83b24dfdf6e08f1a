"""A rank that is killed outright, and the next life of the run."""

from __future__ import annotations

import multiprocessing
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

from marin.checkpoint.completeness import survey
from tests.checkpoint.holder import holder
from tests.training.rank_pool import shared_pool
from tests.training.test_loop import curve
from tests.training.toy import ToyTask, toy_training, train_toy


def killed_while_saving(task: ToyTask) -> None:
    """A run that is killed in its second save, after the tensors and before the finish mark."""
    from marin.checkpoint.store import CheckpointStore

    finish = CheckpointStore._finish

    def kill_the_second(self: CheckpointStore, folder: str, mark: Any) -> Any:
        if mark.step == 8:
            os.kill(os.getpid(), signal.SIGKILL)
        return finish(self, folder, mark)

    CheckpointStore._finish = kill_the_second  # type: ignore[method-assign]
    train_toy(task)


def test_a_kill_in_a_save_costs_the_steps_since_the_last_one_and_no_metric(tmp_path: Path) -> None:
    task = ToyTask(str(tmp_path / "killed"), training=toy_training())
    process = multiprocessing.get_context("spawn").Process(target=killed_while_saving, args=(task,))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL

    found = survey(holder(task.prefix).state)
    assert [checkpoint.step for checkpoint in found.complete] == [4]
    assert [(item.folder, "no finish mark" in item.reason) for item in found.skipped] == [("step-00000008", True)]

    resumed = shared_pool().run(train_toy, replace(task, epoch=2), 1)[0]
    straight = shared_pool().run(train_toy, ToyTask(str(tmp_path / "straight")), 1)[0]
    assert [step for step, *_ in resumed.steps] == list(range(5, 13))
    assert curve(resumed) == curve(straight)
    assert resumed.weights == straight.weights


def test_the_same_epoch_can_go_on_over_its_own_wreck(tmp_path: Path) -> None:
    task = ToyTask(str(tmp_path))
    shared_pool().run(train_toy, task, 1)
    state = holder(task.prefix).state
    for file in state.find("checkpoints/step-00000012/COMPLETE.json"):
        state.store.delete(file.key)
    again = shared_pool().run(train_toy, task, 1)[0]
    assert [step for step, *_ in again.steps] == [9, 10, 11, 12]
    assert survey(state).complete[0].step == 12
