"""A step under every recompute policy, precision and way of summing: equal numbers, nothing sent twice."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import torch

from marin.optim.config import OptimizerConfig, OptimizerKind
from marin.parallel.config import ParallelPlan, Precision
from marin.parallel.traffic import least_traffic
from marin.training.config import TrainingConfig
from marin.training.fit import memory_of
from tests.parallel.ranks import on_ranks
from tests.parallel.steps import (
    CONFIG,
    EVERY,
    FULL,
    KINDS,
    MICRO_BATCHES,
    PLAIN,
    PLANS,
    SELECTIVE,
    SEQUENCES,
    UNEVEN,
    Seen,
    Step,
    Way,
    on_four,
    on_two,
)

FORMS = [
    pytest.param(ranks, plan, marks=[pytest.mark.slow] * (ranks == 4), id=f"{plan}")
    for ranks, plans in PLANS.items()
    for plan in plans
]
Answers = Callable[[int], list[Seen]]


@pytest.fixture(scope="module")
def answers() -> Answers:
    return cache(lambda ranks: on_ranks(ranks, on_two if ranks == 2 else on_four))


def steps(answers: Answers, ranks: int, plan: ParallelPlan, way: Way) -> list[Step]:
    return [rank.steps[plan, way] for rank in answers(ranks)]


@pytest.mark.parametrize(("ranks", "plan"), FORMS)
@pytest.mark.parametrize("way", [PLAIN, SELECTIVE, FULL, EVERY], ids=str)
def test_loss_gradients_and_counts_are_those_of_one_process(answers: Answers, ranks: int, plan: ParallelPlan, way: Way):
    for step in steps(answers, ranks, plan, way):
        assert step.loss < 1e-10
        assert step.gradient < 1e-10
        assert step.loads_equal, "a token was counted twice, or not at all"


@pytest.mark.parametrize(("ranks", "plan"), FORMS)
def test_recomputation_exchanges_and_gathers_nothing_again_and_keeps_less(
    answers: Answers, ranks: int, plan: ParallelPlan
):
    ways = (steps(answers, ranks, plan, way) for way in (PLAIN, SELECTIVE, FULL))
    for plain, selective, full in zip(*ways, strict=True):
        # Numbers of rows and two exchanges forward, two backward.
        assert plain.calls["all_to_all"] == 5 * CONFIG.layers * MICRO_BATCHES
        assert selective.calls == full.calls == plain.calls
        assert full.kept < 0.9 * selective.kept < 0.9 * 0.7 * plain.kept


@pytest.mark.parametrize(("ranks", "plan"), FORMS)
def test_gradients_are_summed_once_a_step_or_after_every_micro_batch(answers: Answers, ranks: int, plan: ParallelPlan):
    ways = (steps(answers, ranks, plan, way) for way in (PLAIN, EVERY))
    for once, every in zip(*ways, strict=True):
        for kind in ("reduce_scatter", "all_reduce"):
            assert every.calls.get(kind, 0) == MICRO_BATCHES * once.calls.get(kind, 0)
        assert ("all_reduce" in once.calls) == (plan.dp_replicate > 1)


@pytest.mark.parametrize(("ranks", "plan"), FORMS)
@pytest.mark.parametrize("way", [PLAIN, FULL, EVERY], ids=str)
def test_a_step_sends_the_least_that_its_plan_needs(answers: Answers, ranks: int, plan: ParallelPlan, way: Way):
    found = steps(answers, ranks, plan, way)
    tokens = SEQUENCES * CONFIG.sequence_length
    least = least_traffic(
        CONFIG,
        plan,
        tokens=tokens // ranks,
        micro_batches=MICRO_BATCHES,
        dtype=torch.float64,
        reduce_every_micro_batch=way.every,
        leaving=sum(step.leaving for step in found) / (tokens * CONFIG.experts_per_token * CONFIG.layers),
    )
    for kind in ("all_gather", "reduce_scatter", "all_reduce", "all_to_all"):
        sent = sum(getattr(step.traffic, kind) for step in found) / ranks
        needed = getattr(least, kind)
        print(f"{plan} {way} {kind}: {sent:.0f} bytes sent, {needed:.0f} needed")
        if kind == "all_to_all":
            assert sent == pytest.approx(needed, rel=1e-12)
        else:
            # Shards are padded to equal sizes: rows of 37 tokens are 40 over four ranks.
            assert needed <= sent <= 1.08 * needed


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_rank_holds_is_what_the_planner_says(answers: Answers, kind: OptimizerKind):
    training = TrainingConfig(
        steps=1,
        batch_sequences=4,
        optimizer=OptimizerConfig(learning_rate=0.003, kind=kind),
        parallel=ParallelPlan(dp_shard=4, ep=2),
    )
    told = memory_of(UNEVEN, training, ranks=4, device_type="cpu")
    held = [rank.held[kind] for rank in answers(4)]
    for name, bytes_ in (("weights", told.weights), ("gradients", told.gradients), ("optimizer", told.optimizer)):
        measured = max(getattr(one, name) for one in held)
        print(f"{kind.value} {name}: {measured} bytes on the fullest rank, {bytes_} planned")
        assert bytes_ == pytest.approx(measured, rel=0.01)
        assert getattr(held[0], name) == measured, "the first rank is not the fullest"
    assert held[0].weights > held[-1].weights
    assert all(one.rows_equal for one in held)


@pytest.mark.parametrize("precision", [Precision.BF16, Precision.FP16])
def test_half_precision_multiplies_in_half_and_normalises_routes_sums_and_reduces_in_fp32(
    answers: Answers, precision: Precision
):
    half = {Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}[precision]
    for rank in answers(2):
        types = rank.half[precision]
        assert types.gains == types.routers == types.gradients == {torch.float32}
        assert types.matrices == types.outputs == {half}
        assert types.loss == torch.float32
        assert types.difference < 5e-3
        # Matrices and fp32 parameters of each block and of the outer unit; experts lie whole on their rank.
        assert types.gathers == 2 * CONFIG.layers + 2
