"""Steps that the guard skips although their loss is finite: on all ranks alike, counted, also after a resume."""

from __future__ import annotations

from typing import Any

import pytest

from marin.optim.config import GuardConfig, LossScaleConfig
from marin.parallel.config import Precision
from tests.training.stopped import run_with_and_without_a_stop
from tests.training.toy import toy_training

pytestmark = pytest.mark.slow

OUTLIERS = toy_training(guard=GuardConfig(deviations=6.0, window=6))
HALF = toy_training(precision=Precision.FP16, loss_scale=LossScaleConfig(initial=4096.0, interval=5))


def test_an_outlier_is_skipped_on_both_ranks_and_a_resumed_run_decides_alike(tmp_path: Any) -> None:
    poison = ((7, 1), (11, 0))
    whole, again = run_with_and_without_a_stop(tmp_path, OUTLIERS, poison=poison, poison_factor=1e3)
    for result in whole:
        changed = {step: before != after for step, _, before, after in result.steps}
        assert changed == {step: step not in (7, 11) for step in range(1, 13)}
    lines = whole[0].lines
    assert [line["step"] for line in lines if line["skipped"]] == [7, 11]
    assert [line["skips"]["loss_outlier"] for line in lines] == [0] * 6 + [1] * 4 + [2] * 2
    assert {name for name, count in lines[-1]["skips"].items() if count} == {"loss_outlier"}
    assert [result.weights for result in again] == [result.weights for result in whole]
    assert [line["skips"] for line in again[0].lines] == [line["skips"] for line in lines]
    assert [line["loss"] for line in again[0].lines] == [line["loss"] for line in lines]


def test_an_overflow_of_fp16_is_skipped_everywhere_and_lowers_the_scale(tmp_path: Any) -> None:
    fields: dict[str, Any] = {"poison": ((3, 1), (9, 0)), "poison_factor": 1e12, "double": False}
    whole, again = run_with_and_without_a_stop(tmp_path, HALF, **fields)
    for result in whole:
        changed = {step: before != after for step, _, before, after in result.steps}
        assert changed == {step: step not in (3, 9) for step in range(1, 13)}
    lines = whole[0].lines
    assert [line["step"] for line in lines if line["skipped"]] == [3, 9]
    assert lines[-1]["skips"]["overflow"] == 2
    # Halved by the overflows, doubled after five good steps (4 to 8).
    assert [line["loss_scale"] for line in lines] == [4096.0] * 2 + [2048.0] * 5 + [4096.0] + [2048.0] * 4
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert [result.weights for result in again] == [result.weights for result in whole]
    assert [line["loss_scale"] for line in again[0].lines] == [line["loss_scale"] for line in lines]
