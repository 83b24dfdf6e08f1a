"""ckpt-02: a run resumed on another number of ranks reads exactly the next sequences."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from tests.training.rank_pool import RankFailed, shared_pool
from tests.training.toy import ToyTask, toy_training, train_toy


def sequences(results: list[Any]) -> dict[int, list[int]]:
    """Numbers of the sequences that all ranks together read, by step."""
    by_step: dict[int, list[int]] = {}
    for step, numbers in chain.from_iterable((s[:2] for s in result.steps) for result in results):
        by_step.setdefault(step, []).extend(numbers)
    return {step: sorted(numbers) for step, numbers in by_step.items()}


@pytest.mark.parametrize(("first", "second"), [(2, 1), (1, 2)])
def test_both_lives_together_read_what_one_life_reads(first: int, second: int, tmp_path: Any) -> None:
    pool = shared_pool()
    training = toy_training(steps=6, checkpoints=replace(toy_training().checkpoints, every_steps=3))
    task = ToyTask(str(tmp_path), training=training)
    with pytest.raises(RankFailed, match="after step 4"):
        pool.run(train_toy, replace(task, stop_after=4), first)
    resumed = sequences(pool.run(train_toy, replace(task, epoch=2), second))
    assert resumed == {step: list(range(8 * (step - 1), 8 * step)) for step in (4, 5, 6)}


def test_a_number_of_ranks_that_does_not_divide_the_batch_is_refused(tmp_path: Any) -> None:
    task = ToyTask(str(tmp_path), training=toy_training(batch_sequences=5))
    with pytest.raises(RankFailed, match="batch_sequences is 5 on 2 ranks"):
        shared_pool().run(train_toy, task, 2)
