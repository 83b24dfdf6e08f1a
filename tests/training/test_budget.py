"""The steps that a budget of FLOPs pays for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from marin.model.accounting import flops_per_token
from marin.model.config import ModelConfig
from marin.optim.config import OptimizerConfig
from marin.tokens.mixture.batches import BatchChange
from marin.training.budget import run_flops, sequence_flops, with_flops
from marin.training.config import TrainingConfig


def model(vocabulary: int) -> ModelConfig:
    return ModelConfig.shaped(
        width=64, layers=2, vocab_size=vocabulary, head_dim=16, experts=8, experts_per_token=2, sequence_length=128
    )


def training(steps: int, *changes: BatchChange) -> TrainingConfig:
    return TrainingConfig(steps, 16, OptimizerConfig(learning_rate=1e-3), batch_changes=changes)


def test_the_flops_of_a_run_are_those_of_every_place_of_its_sequences() -> None:
    assert run_flops(model(512), training(30)) == 30 * 16 * 128 * flops_per_token(model(512))


@pytest.mark.parametrize("vocabulary", [256, 512, 1_024, 4_096, 32_768, 131_072])
def test_vocabularies_take_other_steps_and_agree_in_flops_within_half_a_step(vocabulary: int) -> None:
    budget = run_flops(model(2_048), training(300))

    sized = with_flops(model(vocabulary), training(300), budget)

    step = 16 * sequence_flops(model(vocabulary))
    assert abs(run_flops(model(vocabulary), sized) - budget) <= step / 2
    assert (sized.steps < 300) == (vocabulary > 2_048)
    assert replace(sized, steps=300) == training(300)  # nothing else is touched


def test_a_run_at_its_own_flops_keeps_its_steps() -> None:
    for steps in (1, 2, 3, 30, 999):
        assert with_flops(model(512), training(steps), run_flops(model(512), training(steps))).steps == steps


def test_changes_of_the_batch_are_counted() -> None:
    ramped = training(100, BatchChange(10, 32), BatchChange(20, 64))
    budget = 1.0 * run_flops(model(1_024), ramped)
    by_hand = min(range(21, 400), key=lambda steps: abs(run_flops(model(256), replace(ramped, steps=steps)) - budget))

    assert with_flops(model(256), ramped, budget).steps == by_hand


def test_a_budget_below_half_a_step_is_refused() -> None:
    with pytest.raises(ValueError, match="less than half a step"):
        with_flops(model(512), training(30), 1e3)
