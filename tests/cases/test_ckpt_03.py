"""ckpt-03: a resumed run has the losses, rates, sequences and weights of one that never stopped, to the last bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.training.rank_pool import RankFailed, shared_pool
from tests.training.test_loop import curve
from tests.training.toy import ToyTask, toy_training, train_toy


@pytest.mark.parametrize("stop", [5, 6], ids=["on a save", "between saves, inside an accumulation of micro-batches"])
def test_five_steps_then_twelve_equal_twelve(stop: int, tmp_path: Any) -> None:
    pool = shared_pool()
    training = toy_training(
        micro_batch_sequences=3, checkpoints=replace(toy_training().checkpoints, every_steps=5), gradient_clip=0.3
    )
    straight = pool.run(train_toy, ToyTask(str(tmp_path / "straight"), training=training), 1)[0]
    task = ToyTask(str(tmp_path / "stopped"), training=training)
    with pytest.raises(RankFailed, match=f"after step {stop}"):
        pool.run(train_toy, replace(task, stop_after=stop), 1)
    resumed = pool.run(train_toy, replace(task, epoch=2), 1)[0]
    assert curve(resumed) == curve(straight)
    assert resumed.steps == straight.steps[-len(resumed.steps) :]
    assert resumed.weights == straight.weights
