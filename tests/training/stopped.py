"""A toy run made at once, and the same run stopped and taken up again."""

from __future__ import annotations

from typing import Any

import pytest

from marin.training.config import TrainingConfig
from tests.training.rank_pool import RankFailed, shared_pool
from tests.training.toy import ToyResult, ToyTask, train_toy


def run_with_and_without_a_stop(
    folder: Any, training: TrainingConfig, **fields: Any
) -> tuple[list[ToyResult], list[ToyResult]]:
    """Results on two ranks of the run made at once, and of the one stopped after step 10, so resumed from step 8."""
    whole = shared_pool().run(train_toy, ToyTask(str(folder / "whole"), training=training, **fields), 2)
    with pytest.raises(RankFailed):
        shared_pool().run(train_toy, ToyTask(str(folder / "cut"), training=training, stop_after=10, **fields), 2)
    again = shared_pool().run(train_toy, ToyTask(str(folder / "cut"), epoch=2, training=training, **fields), 2)
    return whole, again
