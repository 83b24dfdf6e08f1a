"""Every sharded form of the model computes what one process computes: loss, every gradient, norm, router bias,
weights.
"""

import pytest
import torch

from marin.parallel.config import ParallelPlan, Recompute
from tests.parallel.ranks import on_ranks
from tests.parallel.scenarios import Difference, HalfStep, Scenario, differences, everything_on_two

F32 = torch.float32
SHARD2, EP2 = ParallelPlan(dp_shard=2), ParallelPlan(dp_shard=2, ep=2)
TWO = [
    Scenario(SHARD2, optimizer="muonh", steps=3),
    Scenario(EP2, optimizer="adamw", steps=3),
    Scenario(ParallelPlan(dp_replicate=2)),
    Scenario(EP2, recompute=Recompute.FULL, micro_batches=2),
    Scenario(EP2, starved=True),
    Scenario(EP2, dtype=F32),
    Scenario(SHARD2, dtype=F32, recompute=Recompute.FULL),
]
FOUR = [
    Scenario(ParallelPlan(dp_shard=4, ep=2), optimizer="muonh", steps=3),
    Scenario(ParallelPlan(dp_shard=4, ep=4), starved=True),
    Scenario(ParallelPlan(dp_replicate=2, dp_shard=2, ep=2), micro_batches=2, recompute=Recompute.FULL),
    Scenario(ParallelPlan(dp_shard=4, ep=2), dtype=F32),
]


@pytest.fixture(scope="module")
def on_two() -> list[tuple[dict[str, Difference], HalfStep]]:
    return on_ranks(2, everything_on_two, TWO)


@pytest.fixture(scope="module")
def on_four() -> list[dict[str, Difference]]:
    return on_ranks(4, differences, FOUR)


def check(answers: list[dict[str, Difference]], scenario: Scenario) -> None:
    exact = scenario.dtype == torch.float64
    for answer in answers:
        difference = answer[scenario.name]
        assert not difference.missing, "a parameter without gradient would drift from its copies"
        # Optimizers divide by small numbers, so from their second step on rounding shows.
        limit = (1e-10 if scenario.optimizer == "sgd" else 1e-9) if exact else 1e-6
        assert difference.loss < limit, difference
        assert difference.gradient < limit, difference
        assert difference.norm < limit, difference
        assert difference.clipped < 1e-5, difference
        assert difference.weight < limit, difference
        # The histogram's bins are integers; only a margin at the edge of a bin may fall on its other side.
        assert difference.bias < (1e-9 if exact else 2e-3), difference


@pytest.mark.parametrize("scenario", TWO, ids=lambda s: s.name)
def test_two_ranks_equal_one_process(on_two: list[tuple[dict[str, Difference], HalfStep]], scenario: Scenario) -> None:
    check([found for found, _ in on_two], scenario)


def test_half_precision_multiplies_in_bf16_but_routes_sums_and_reduces_in_fp32(
    on_two: list[tuple[dict[str, Difference], HalfStep]],
) -> None:
    for _, step in on_two:
        # Gradients are not compared: rounding moves tokens between experts.
        assert step.loss == pytest.approx(step.expected, rel=5e-3)
        assert step.router_weight == step.loss_dtype == torch.float32
        assert step.gradient_dtypes == {torch.float32}


@pytest.mark.slow
@pytest.mark.parametrize("scenario", FOUR, ids=lambda s: s.name)
def test_four_ranks_equal_one_process(on_four: list[dict[str, Difference]], scenario: Scenario) -> None:
    check(on_four, scenario)
