"""Saves within a run: a store in trouble, both sets of checkpoints, and the curve of an interrupted run."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from marin.checkpoint.completeness import survey
from marin.checkpoint.config import CheckpointPolicy
from marin.optim.config import OptimizerConfig, OptimizerKind
from marin.parallel.config import ParallelPlan
from marin.training.hooks import Hook
from tests.checkpoint.holder import holder
from tests.training.rank_pool import RankFailed, RankPool, shared_pool
from tests.training.test_loop import curve, scores
from tests.training.toy import ToyResult, ToyTask, toy_training, train_toy

PLAN = ParallelPlan(dp_shard=2, ep=2)
MUONH = OptimizerConfig(3e-3, kind=OptimizerKind.MUONH)


@dataclass(frozen=True)
class Troubled:
    """A run whose disk is full for the first writes of tensors on one rank, or whose first save is held up until a
    later step is made.
    """

    task: ToyTask
    full_on_rank: int = -1
    full_times: int = 0
    held_until: int = 0


class Witness(Hook):
    """What hooks are told of saves, and the step that was made last."""

    def __init__(self) -> None:
        self.failed_saves: list[tuple[int, int]] = []
        self.saved_steps: list[tuple[int, int]] = []
        self.step = 0
        self.reached = threading.Event()
        self.until = 0

    def after_update(self, step: int) -> None:
        self.step = step
        if step >= self.until:
            self.reached.set()

    def save_failed(self, step: int, attempts: int, reason: str) -> None:
        assert "No space left" in reason
        self.failed_saves.append((step, attempts))

    def saved(self, found: Any) -> None:
        self.saved_steps.append((found.step, self.step))


def train_troubled(case: Troubled) -> tuple[ToyResult, list[tuple[int, int]], list[tuple[int, int]]]:
    """One rank's result, the attempts that it was told of as failed, and (step, step made last when it was saved)."""
    from marin.execution.running.context import State

    witness, write = Witness(), State.write
    witness.until = case.held_until
    left = [case.full_times if int(os.environ["RANK"]) == case.full_on_rank else 0]

    def trouble(self: State, name: str) -> Any:
        if name.startswith("checkpoints/") and name.endswith(".distcp"):
            if left[0]:
                left[0] -= 1
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if "step-00000004" in name:
                assert witness.reached.wait(60)
        return write(self, name)

    State.write = trouble  # type: ignore[method-assign]
    try:
        result = train_toy(replace(case.task, hooks=(witness,)))
    finally:
        State.write = write  # type: ignore[method-assign]
    return result, witness.failed_saves, witness.saved_steps


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> list[ToyResult]:
    """An undisturbed run."""
    return shared_pool().run(train_toy, ToyTask(str(tmp_path_factory.mktemp("straight")), plan=PLAN), 2)


def test_a_full_disk_on_one_rank_is_told_on_all_and_costs_the_run_nothing(
    straight: list[ToyResult], tmp_path: Path
) -> None:
    policy = CheckpointPolicy(every_steps=4, keep_last=3, retry_seconds=0.01)
    task = ToyTask(str(tmp_path), plan=PLAN, training=toy_training(checkpoints=policy))
    ranks = shared_pool().run(train_troubled, Troubled(task, full_on_rank=1, full_times=2), 2)
    (first, failed, _), (second, failed_there, _) = ranks
    assert [attempts for _, attempts in failed] in ([1, 2], [1, 1])  # the same step again, or the next in its place
    assert failed == failed_there
    assert curve(first) == curve(straight[0])
    assert [first.weights, second.weights] == [rank.weights for rank in straight]
    news = [line["checkpoint"] for line in first.lines if "checkpoint" in line]
    assert [one["failed_step"] for one in news if "failed_step" in one] == [step for step, _ in failed if step < 12]
    assert survey(holder(task.prefix).state).complete[0].step == 12


def test_training_goes_on_while_a_save_is_written(straight: list[ToyResult], tmp_path: Path) -> None:
    task = ToyTask(str(tmp_path), plan=PLAN)
    ranks = shared_pool().run(train_troubled, Troubled(task, held_until=7), 2)
    for _, _, saved in ranks:
        steps = dict(saved)
        assert steps.keys() == {4, 8, 12}
        assert steps[4] >= 7
    first = ranks[0][0]
    assert curve(first) == curve(straight[0])
    told = {
        line["checkpoint"]["saved_step"]: line["step"]
        for line in first.lines
        if "saved_step" in line.get("checkpoint", {})
    }
    assert told[4] > 7
    staged = [
        line["checkpoint"]["staging_seconds"] for line in first.lines if "staging_seconds" in line.get("checkpoint", {})
    ]
    assert len(staged) == 2
    assert all(seconds > 0 for seconds in staged)


def test_checkpoints_by_minutes_roll_and_permanent_ones_stay(straight: list[ToyResult], tmp_path: Path) -> None:
    policy = CheckpointPolicy(every_steps=None, every_minutes=1e-9, permanent_every_steps=5)
    task = ToyTask(str(tmp_path), plan=PLAN, training=toy_training(checkpoints=policy))
    with pytest.raises(RankFailed, match="after step 7"):
        shared_pool().run(train_toy, replace(task, stop_after=7), 2)
    left = {found.step: found.permanent for found in survey(holder(task.prefix).state).complete}
    assert left[5]
    assert max(left) in (5, 6, 7)
    resumed = shared_pool().run(train_toy, replace(task, epoch=2), 2)
    assert resumed[0].steps[0][0] == max(left) + 1
    assert curve(resumed[0]) == curve(straight[0])
    complete = survey(holder(task.prefix, epoch=2).state).complete
    assert [found.step for found in complete if found.permanent] == [10, 5]
    assert complete[0].step == 12


def _life(pool: RankPool, task: ToyTask, world: int) -> list[ToyResult]:
    return pool.run(train_toy, task, world)


def test_an_interrupted_run_of_the_recipes_optimizer_has_the_undisturbed_curve_line_by_line(tmp_path: Path) -> None:
    training = toy_training(optimizer=MUONH, micro_batch_sequences=3)
    task = ToyTask(str(tmp_path / "stopped"), plan=PLAN, training=training, double=False)
    undisturbed = _life(shared_pool(), replace(task, prefix=str(tmp_path / "straight")), 2)
    with pytest.raises(RankFailed, match="after step 7"):
        _life(shared_pool(), replace(task, stop_after=7), 2)
    resumed = _life(shared_pool(), replace(task, epoch=2), 2)
    assert [step for step, *_ in resumed[0].steps] == list(range(5, 13))
    for line, its in zip(curve(resumed[0]), curve(undisturbed[0]), strict=True):
        assert line == its
    assert [rank.weights for rank in resumed] == [rank.weights for rank in undisturbed]
    assert scores(resumed[0]) == scores(undisturbed[0])


@pytest.fixture(scope="module")
def four() -> Iterator[RankPool]:
    pool = RankPool(4, patience=300)
    yield pool
    pool.close()


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", [OptimizerConfig(3e-3), MUONH], ids=["AdamW", "MuonH"])
def test_four_ranks_two_and_four_again_are_one_run_to_rounding(
    optimizer: OptimizerConfig, four: RankPool, tmp_path: Path
) -> None:
    policy = CheckpointPolicy(every_steps=5, keep_last=3)
    training = toy_training(steps=20, optimizer=optimizer, checkpoints=policy)
    wide = ToyTask(str(tmp_path / "moved"), plan=ParallelPlan(dp_shard=4, ep=2), training=training)
    narrow = replace(wide, plan=ParallelPlan(dp_shard=2, ep=1), training=replace(training, micro_batch_sequences=3))
    undisturbed = _life(four, replace(wide, prefix=str(tmp_path / "straight")), 4)
    for epoch, task, world in ((1, wide, 4), (2, narrow, 2)):
        with pytest.raises(RankFailed):
            _life(four, replace(task, epoch=epoch, stop_after=5 * epoch + 1), world)
    back = _life(four, replace(wide, epoch=3), 4)
    assert [step for step, *_ in back[0].steps] == list(range(11, 21))
    for figure in ("loss", "gradient_norm"):
        pairs = zip(back[0].lines, undisturbed[0].lines, strict=True)
        apart = [abs(own[figure] - theirs[figure]) for own, theirs in pairs]
        assert sum(apart) <= 1e-9
