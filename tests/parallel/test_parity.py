"""Every sharded form of the model computes what one process computes: loss, every gradient, norm, router bias,
weights.
"""

from dataclasses import replace

import pytest
import torch

from marin.model.config import Balancing, BalancingConfig, CapacityConfig
from marin.parallel.config import ParallelPlan, Recompute
from tests.parallel.divided_matrices import DividedMatrices
from tests.parallel.limited_exchange import LIMITED_MODEL, Forward, Limited, LimitedAnswers
from tests.parallel.ranks import on_ranks
from tests.parallel.scenarios import (
    CONFIG,
    Difference,
    HalfStep,
    Scenario,
    differences,
    everything_on_four,
    everything_on_two,
)

F32 = torch.float32
SHARD2, EP2 = ParallelPlan(dp_shard=2), ParallelPlan(dp_shard=2, ep=2)
OPTIMIZERS = ("muonh", "adamw", "adafactor", "lion")
WAYS = ((Recompute.NONE, 1), (Recompute.FULL, 1), (Recompute.NONE, 2), (Recompute.FULL, 2))
"""Recomputation and micro-batches: each optimizer has another one on each plan."""
ONE_OVER_TWO = (("experts", 2), ("experts_per_token", 1))
"""One expert an ep rank, to be divided over two ranks."""
LIMITED = (("balancing", BalancingConfig(kind=Balancing.SIGN, capacity=CapacityConfig(1.5, 1.0))),)
AUXILIARY = (("balancing", BalancingConfig(kind=Balancing.AUXILIARY, auxiliary_coefficient=0.5, router_z_loss=0.1)),)


def every_optimizer(*plans: ParallelPlan) -> list[Scenario]:
    return [
        Scenario(plan, optimizer=optimizer, steps=3, recompute=way[0], micro_batches=way[1])
        for shift, plan in enumerate(plans)
        for optimizer, way in zip(OPTIMIZERS, WAYS[shift:] + WAYS[:shift], strict=True)
    ]


TWO = [
    Scenario(SHARD2, optimizer="muonh", steps=3),
    Scenario(SHARD2, optimizer="adafactor", steps=3, micro_batches=2),
    Scenario(EP2, optimizer="adamw", steps=3, micro_batches=2, recompute=Recompute.FULL),
    Scenario(EP2, optimizer="lion", steps=3),
    Scenario(EP2, starved=True),
    Scenario(EP2, recompute=Recompute.SELECTIVE, sizes=LIMITED, label="capacity"),
    Scenario(SHARD2, recompute=Recompute.FULL, sizes=AUXILIARY, label="auxiliary"),
    Scenario(EP2, dtype=F32),
    Scenario(SHARD2, dtype=F32, recompute=Recompute.FULL),
]
FOUR = [
    *every_optimizer(
        ParallelPlan(dp_shard=4),
        ParallelPlan(dp_shard=4, ep=4),
        ParallelPlan(dp_shard=4, ep=2),
        ParallelPlan(dp_replicate=2, dp_shard=2, ep=2),
    ),
    Scenario(ParallelPlan(dp_shard=4, ep=4), starved=True),
    Scenario(ParallelPlan(dp_shard=4, ep=4), starved=True, sizes=LIMITED, label="capacity"),
    Scenario(ParallelPlan(dp_shard=4, ep=2), recompute=Recompute.SELECTIVE, sizes=AUXILIARY, label="auxiliary"),
    Scenario(ParallelPlan(dp_replicate=2, dp_shard=2, ep=2), sizes=AUXILIARY, label="auxiliary"),
    Scenario(ParallelPlan(dp_shard=4, ep=2), dtype=F32),
    Scenario(ParallelPlan(dp_shard=4, ep=2), optimizer="muonh", sizes=(("experts", 6),)),
    Scenario(ParallelPlan(dp_shard=4, ep=2), optimizer="muonh", sizes=ONE_OVER_TWO),
]
CROSSED = every_optimizer(SHARD2, EP2, ParallelPlan(dp_replicate=2))
OnTwo = list[tuple[dict[str, Difference], HalfStep, LimitedAnswers, DividedMatrices]]
OnFour = list[tuple[dict[str, Difference], LimitedAnswers, DividedMatrices]]


@pytest.fixture(scope="module")
def on_two() -> OnTwo:
    return on_ranks(2, everything_on_two, TWO)


@pytest.fixture(scope="module")
def on_four() -> OnFour:
    return on_ranks(4, everything_on_four, FOUR)


@pytest.fixture(scope="module")
def crossed_on_two() -> list[dict[str, Difference]]:
    return on_ranks(2, differences, CROSSED)


def check(answers: list[dict[str, Difference]], scenario: Scenario) -> None:
    exact = scenario.dtype == torch.float64
    for answer in answers:
        difference = answer[scenario.name]
        assert not difference.missing, "a parameter without gradient would drift from its copies"
        # Optimizers divide by small numbers, so from their second step on rounding shows.
        limit = (1e-10 if scenario.optimizer == "sgd" else 1e-9) if exact else 1e-6
        assert difference.first_gradient < (1e-10 if exact else 1e-6), difference
        assert difference.loss < limit, difference
        assert difference.gradient < limit, difference
        assert difference.norm < limit, difference
        assert difference.clipped < 1e-5, difference
        assert difference.weight < limit, difference
        assert difference.copies_agree, difference
        # The histogram's bins are integers; only a margin at the edge of a bin may fall on its other side.
        assert difference.bias < (1e-9 if exact else 2e-3), difference
    if scenario.optimizer == "muonh":
        check_each_matrix_once_a_replica([answer[scenario.name].orthogonalised for answer in answers], scenario)


def check_each_matrix_once_a_replica(by_rank: list[int], scenario: Scenario) -> None:
    config = replace(CONFIG, **dict(scenario.sizes))
    norms = 2 * (2 * config.layers + 2)
    block = 4 + 2 + 3 * config.experts + 3 * config.shared_experts
    shard = scenario.plan.dp_shard
    for replica in range(scenario.plan.dp_replicate):
        own = by_rank[replica * shard : (replica + 1) * shard]
        assert sum(own) == norms + config.layers * block
        assert min(own) > 0


@pytest.mark.parametrize("scenario", TWO, ids=lambda s: s.name)
def test_two_ranks_equal_one_process(on_two: OnTwo, scenario: Scenario) -> None:
    check([found for found, *_ in on_two], scenario)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", CROSSED, ids=lambda s: s.name)
def test_every_optimizer_on_two_ranks_equals_one_process(
    crossed_on_two: list[dict[str, Difference]], scenario: Scenario
) -> None:
    check(crossed_on_two, scenario)


def test_half_precision_multiplies_in_bf16_but_routes_sums_and_reduces_in_fp32(on_two: OnTwo) -> None:
    for _, step, *_ in on_two:
        # Gradients are not compared: rounding moves tokens between experts.
        assert step.loss == pytest.approx(step.expected, rel=5e-3)
        assert step.router_weight == step.loss_dtype == torch.float32
        assert step.gradient_dtypes == {torch.float32}


@pytest.mark.slow
@pytest.mark.parametrize("scenario", FOUR, ids=lambda s: s.name)
def test_four_ranks_equal_one_process(on_four: OnFour, scenario: Scenario) -> None:
    check([found for found, *_ in on_four], scenario)


def check_divided(found: list[DividedMatrices]) -> None:
    for matrices in found:
        assert matrices.weight < 1e-9
        assert matrices.momentum < 1e-12
        assert matrices.adafactor < 1e-12
        assert matrices.drift < 1e-6
        assert "columns divided" in matrices.refused


def test_uneven_empty_and_stacked_parts_equal_whole_matrices_and_keep_norms_on_two_ranks(on_two: OnTwo) -> None:
    check_divided([matrices for *_, matrices in on_two])


@pytest.mark.slow
def test_uneven_empty_and_stacked_parts_equal_whole_matrices_and_keep_norms_on_four_ranks(on_four: OnFour) -> None:
    check_divided([matrices for *_, matrices in on_four])


def check_limited(by_rank: list[list[Limited]]) -> None:
    for case in zip(*by_rank, strict=True):
        for seen in case:
            assert seen.dropped == seen.expected_dropped
            assert seen.difference < 1e-12
            # Experts of the slots, two exchanges forward, two backward, whatever the router chose.
            assert seen.calls == 5
            assert seen.sent == pytest.approx(seen.fixed, rel=1e-12)
    assert any(seen.dropped for seen in by_rank[0])


def check_limited_models(by_rank: list[dict[Recompute, Forward]]) -> None:
    for ways in by_rank:
        for forward in ways.values():
            assert forward.loss < 1e-10
            assert forward.gradient < 1e-10
            assert forward.dropped == ways[Recompute.NONE].dropped > 0
            assert forward.calls == 5 * LIMITED_MODEL.layers, "an exchange was repeated"
            # The histograms of a step that knows its range are pooled before its forward pass ends.
            assert forward.pooled == LIMITED_MODEL.layers
            assert forward.widths == {LIMITED_MODEL.latent_width}


def test_a_limited_exchange_over_two_ranks_drops_and_computes_by_the_rule(on_two: OnTwo) -> None:
    check_limited([exchanges for _, _, (exchanges, _), _ in on_two])


def test_a_named_back_end_carries_latent_rows_once_and_drops_the_same_whatever_is_recomputed(on_two: OnTwo) -> None:
    check_limited_models([models for _, _, (_, models), _ in on_two])


@pytest.mark.slow
def test_a_limited_exchange_over_four_ranks_drops_and_computes_by_the_rule(on_four: OnFour) -> None:
    check_limited([exchanges for _, (exchanges, _), _ in on_four])
    check_limited_models([models for _, (_, models), _ in on_four])
