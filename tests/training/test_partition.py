"""A gang that is cut off trains on while its successor trains: the successor's run is the undisturbed one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from marin.checkpoint.completeness import FoundCheckpoint, survey
from marin.parallel.config import ParallelPlan
from tests.checkpoint.holder import holder
from tests.storage.backends import wait_for
from tests.training.rank_pool import RankPool, shared_pool
from tests.training.test_loop import curve, scores
from tests.training.toy import ToyResult, ToyTask, toy_training, train_toy

PLAN = ParallelPlan(dp_shard=2, ep=2)
HELD_AT = 4


@dataclass(frozen=True)
class CutOff:
    """A gang's life that pauses behind its first checkpoint until a file appears. It sees no newer claim."""

    task: ToyTask
    go: str


def train_cut_off(cut_off: CutOff) -> ToyResult:
    """One rank of it."""
    from marin.checkpoint.store import CheckpointStore

    save = CheckpointStore.save

    def save_and_wait(self: CheckpointStore, tensors: Any, progress: Any, **options: Any) -> FoundCheckpoint:
        found = save(self, tensors, progress, **options)
        if progress.step == HELD_AT:
            wait_for(Path(cut_off.go).exists, 120)
        return found

    CheckpointStore.save = save_and_wait  # type: ignore[method-assign]
    try:
        return train_toy(cut_off.task)
    finally:
        CheckpointStore.save = save  # type: ignore[method-assign]


def checkpoints(prefix: str, epoch: int, seen_by: int) -> dict[int, dict[str, str]]:
    """The tensors that an epoch saved: digests of their files by step. The other files hold times, which differ."""
    return {
        found.step: {file.name: file.sha256 for file in found.mark.files if file.name.endswith(".distcp")}
        for found in survey(holder(prefix, epoch=seen_by).state).complete
        if found.epoch == epoch
    }


@pytest.mark.slow
def test_a_successor_of_a_gang_that_trains_on_has_the_undisturbed_run(tmp_path: Path) -> None:
    waiting = toy_training(checkpoints=replace(toy_training().checkpoints, asynchronous=False))
    straight = shared_pool().run(train_toy, ToyTask(str(tmp_path / "straight"), plan=PLAN, training=waiting), 2)
    task, go = ToyTask(str(tmp_path / "run"), plan=PLAN, training=waiting), tmp_path / "go"
    elsewhere = RankPool(2)
    try:
        with ThreadPoolExecutor(1) as thread:
            zombie = thread.submit(elsewhere.run, train_cut_off, CutOff(task, str(go)), 2)
            wait_for(lambda: checkpoints(task.prefix, 1, 1).keys() == {HELD_AT}, 120)
            go.touch()
            successor = shared_pool().run(train_toy, replace(task, epoch=2), 2)
            zombie.result(timeout=120)
    finally:
        elsewhere.close()
    began = next(step for step, *_ in successor[0].steps)
    assert began in (HELD_AT + 1, 2 * HELD_AT + 1)
    assert curve(successor[0]) == curve(straight[0])
    assert scores(successor[0]) == scores(straight[0])
    assert [rank.weights for rank in successor] == [rank.weights for rank in straight]
    assert [rank.bias for rank in successor] == [rank.bias for rank in straight]
    undisturbed = checkpoints(str(tmp_path / "straight"), 1, 1)
    assert [len(files) for files in undisturbed.values()] == [2, 2, 2]
    assert checkpoints(task.prefix, 1, 2) == undisturbed
    assert checkpoints(task.prefix, 2, 2) == {step: undisturbed[step] for step in undisturbed if step >= began}
