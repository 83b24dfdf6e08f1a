"""Every optimizer's state, divided and at rest on the host, goes through a checkpoint to the last bit."""

from __future__ import annotations

from typing import Any

import pytest

from marin.optim.config import OptimizerConfig, OptimizerKind
from marin.parallel.config import ParallelPlan
from tests.training.stopped import run_with_and_without_a_stop
from tests.training.toy import toy_training

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("kind", "plan"),
    [
        (OptimizerKind.MUONH, ParallelPlan(dp_shard=2)),
        (OptimizerKind.ADAFACTOR, ParallelPlan(dp_shard=2, ep=2)),
        (OptimizerKind.LION, ParallelPlan(dp_replicate=2)),
    ],
)
def test_a_run_with_its_state_on_the_host_goes_on_as_if_it_had_not_stopped(
    tmp_path: Any, kind: OptimizerKind, plan: ParallelPlan
) -> None:
    training = toy_training(optimizer=OptimizerConfig(3e-3, kind=kind), optimizer_on_host=True)
    whole, again = run_with_and_without_a_stop(tmp_path, training, plan=plan)
    assert [result.weights for result in again] == [result.weights for result in whole]
    assert [line["loss"] for line in again[0].lines] == [line["loss"] for line in whole[0].lines]
