"""Router, balancing, dispatch and experts against the equations."""

from dataclasses import replace

import pytest
import torch
from torch.autograd import gradcheck

from marin.model.balancing import add_to_histogram, exceeded_by, sign_bias, widened
from marin.model.config import Balancing, BalancingConfig
from marin.model.dispatch import Dispatched, LocalDispatcher
from marin.model.outputs import LocalReducer
from marin.model.router import Router, finish_step
from marin.model.transformer import Transformer
from tests.model.small import SMALL, lively, packed

F64 = torch.float64


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def exact_exceeded(margins_NE: torch.Tensor, target: float) -> torch.Tensor:
    """The value that `target` tokens exceed, halfway into the gap when the target is a whole number of tokens."""
    ordered = margins_NE.sort(0, descending=True).values
    below = int(target)
    return (ordered[below - 1] + ordered[below]) / 2


def test_combine_weights_come_from_unbiased_logits_and_sum_to_the_scale():
    model = lively()
    router = model.routers()[0]
    m = random(9, 16)
    router.bias.copy_(10 * random(6, seed=1))
    routing = router(m)
    logits = m @ router.weight.T
    for t in range(9):
        expected = sorted(range(6), key=lambda e: -float((logits[t, e] + router.bias[e]).detach()))[:2]
        assert routing.experts_NK[t].tolist() == expected
        shares = torch.sigmoid(logits[t, expected])
        torch.testing.assert_close(routing.weights_NK[t], 2.5 * shares / shares.sum())
    torch.testing.assert_close(routing.weights_NK.sum(1), torch.full((9,), 2.5, dtype=F64))
    assert router.bias.grad is None
    assert not router.bias.requires_grad


def test_histogram_quantile_is_within_one_bin_of_the_exact_one():
    tokens, experts, k, bins = 4000, 16, 3, 10_000
    margins = random(tokens, experts) * (1 + torch.arange(experts)) - 1
    low, high = margins.aminmax()
    counts = torch.zeros(experts, bins, dtype=torch.int64)
    for part in margins.split(701):
        add_to_histogram(counts, part, low, high)
    assert int(counts.sum()) == margins.numel()
    target = tokens * k / experts
    found = exceeded_by(counts, target, low, high)
    ordered = margins.sort(0, descending=True).values
    # The exact quantile is any value between the neighbours of the crossing.
    gap = torch.maximum(ordered[int(target)] - found, found - ordered[int(target) - 1]).clamp(min=0)
    width = float((high - low) / bins)
    assert float(gap.max()) <= width
    exceeding = (margins > found).sum(0)
    assert float((exceeding - target).abs().max()) <= float(counts.max())


def test_outliers_of_the_previous_range_fall_into_the_edge_bins():
    counts = torch.zeros(1, 10, dtype=torch.int64)
    add_to_histogram(
        counts, torch.tensor([[-50.0], [0.05], [0.95], [1.0], [70.0]]), torch.tensor(0.0), torch.tensor(1.0)
    )
    assert counts[0].tolist() == [2, 0, 0, 0, 0, 0, 0, 0, 0, 3]


def test_the_range_is_widened_by_a_tenth_on_each_side_and_never_empty():
    low, high = widened(torch.tensor(-1.0), torch.tensor(3.0), 0.1)
    assert (float(low), float(high)) == pytest.approx((-1.4, 3.4))
    low, high = widened(torch.tensor(2.0), torch.tensor(2.0), 0.1)
    assert float(low) < float(high)


def test_the_first_steps_bias_balances_the_load_of_the_same_tokens():
    config = replace(SMALL, experts=8, width=32)
    router = Router(config).to(F64)
    router.reset_state()
    with torch.no_grad():
        router.weight.copy_(random(8, 32) * torch.linspace(0.2, 2, 8)[:, None])
    m = random(4000, 32, seed=1) + 0.3
    before = torch.bincount(router(m).experts_NK.flatten(), minlength=8).double()
    margins_kept = torch.cat(router._kept_margins)
    finish_step([router], LocalReducer())
    expected = -exact_exceeded(margins_kept, 4000 * 2 / 8)
    expected = expected - expected.mean()
    span = float(margins_kept.max() - margins_kept.min())
    assert float((router.bias - expected).abs().max()) < 2 * span / 10_000
    after = torch.bincount(router(m).experts_NK.flatten(), minlength=8).double()
    assert float(after.std()) < 0.5 * float(before.std())
    assert float(router.bias.mean()) == pytest.approx(0, abs=1e-12)


def test_a_later_steps_bias_replaces_the_earlier_one_and_its_range_is_widened_for_the_next():
    config = replace(SMALL, experts=8, width=32)
    router = Router(config).to(F64)
    router.reset_state()
    with torch.no_grad():
        router.weight.copy_(random(8, 32) * torch.linspace(0.2, 2, 8)[:, None])
    for step in range(3):
        m = random(4000, 32, seed=step) + 0.3
        logits = (m @ router.weight.T).detach()
        # The threshold is biased by the step before, the margins' logits are not.
        margins = logits - (logits + router.bias).sort(1, descending=True).values[:, 2:3]
        router(m)
        finish_step([router], LocalReducer())
        expected = -exact_exceeded(margins, 4000 * 2 / 8)
        width = margins.max() - margins.min()
        torch.testing.assert_close(router.bias, expected - expected.mean(), rtol=0, atol=3e-4 * float(width))
        reach = torch.stack((margins.min() - 0.1 * width, margins.max() + 0.1 * width))
        torch.testing.assert_close(router.margin_range, reach)


def test_micro_batches_and_recompute_count_each_token_once_and_evaluation_none():
    batch = packed(batch=4)
    whole, split = lively(), lively()
    whole(**batch)
    for b in range(4):
        split(**{n: t[b : b + 1] for n, t in batch.items()})
    for router in split.routers():
        with router.recomputing():
            router(random(5, 16))
    split.eval()
    split(**batch)
    one, two = whole.update_router_bias(), split.update_router_bias()
    assert torch.equal(one.load_LE, two.load_LE)
    assert one.tokens == two.tokens == 4 * 14
    assert int(one.load_LE[0].sum()) == 2 * one.tokens
    for a, b in zip(whole.routers(), split.routers(), strict=True):
        torch.testing.assert_close(a.bias, b.bias, rtol=0, atol=1e-12)
        torch.testing.assert_close(a.margin_range, b.margin_range)
        assert not b.load_E.any()
        assert not b.margin_counts_EH.any()


def test_routing_state_survives_a_state_dict():
    model, batch = lively(), packed(batch=4)
    model(**batch)
    model.update_router_bias()
    other = Transformer(SMALL).double()
    other.load_state_dict(model.state_dict())
    for form in (model, other):
        form(**batch)
    assert torch.equal(model.update_router_bias().load_LE, other.update_router_bias().load_LE)
    for a, b in zip(model.routers(), other.routers(), strict=True):
        assert torch.equal(a.bias, b.bias)


def test_a_step_without_tokens_leaves_the_bias_alone():
    model = lively()
    before = [r.bias.clone() for r in model.routers()]
    statistics = model.update_router_bias()
    assert statistics.tokens == 0
    assert all(torch.equal(a, r.bias) for a, r in zip(before, model.routers(), strict=True))
    assert all(v == v for v in statistics.summary().values())


def test_statistics_name_dead_experts_and_the_worst_load():
    config = replace(SMALL, balancing=BalancingConfig(kind=Balancing.NONE))
    model = Transformer(config)
    for router in model.routers():
        router.bias.copy_(torch.tensor([9.0, 9.0, 0, 0, 0, 0]))
    model(**packed())
    figures = model.update_router_bias().summary()
    assert model.router_statistics() is not None
    assert figures["moe/dead_experts"] == 4 * 5
    assert figures["moe/load_max_over_mean_worst"] == pytest.approx(3.0)
    assert figures["moe/dropped_fraction"] == 0


class DroppingDispatcher(LocalDispatcher):
    """Says of three assignments a layer that no expert computes them."""

    def dispatch(self, x_NL: torch.Tensor, experts_NK: torch.Tensor, experts: int) -> Dispatched:
        return replace(super().dispatch(x_NL, experts_NK, experts), dropped=3)


def test_the_dropped_fraction_is_that_of_all_assignments():
    model, batch = lively(), packed()
    model.set_dispatcher(DroppingDispatcher())
    model(**batch)
    figures = model.update_router_bias().summary()
    assert figures["moe/dropped_fraction"] == pytest.approx(3 / (2 * batch["tokens_BT"].numel()))


def test_counts_past_what_fp32_can_hold_keep_their_quantile():
    counts = torch.tensor([[2**25, 1, 2**25 + 2]])
    low, high = torch.tensor(0.0), torch.tensor(3.0)
    assert float(exceeded_by(counts, 2**25 + 2, low, high)) == pytest.approx(2.0, abs=1e-12)
    assert float(exceeded_by(counts, 2**25 + 2.5, low, high)) == pytest.approx(1.5, abs=1e-12)


def test_sign_rule_steps_towards_the_mean():
    bias = sign_bias(torch.zeros(3), torch.tensor([5, 1, 3]), 0.25)
    assert bias.tolist() == [-0.25, 0.25, 0.0]


def test_dispatch_and_combine_are_the_weighted_sum_over_chosen_experts():
    x = random(7, 4).requires_grad_()
    experts = torch.stack([torch.randperm(5, generator=torch.Generator().manual_seed(i))[:3] for i in range(7)])
    weights = random(7, 3, seed=2).requires_grad_()
    scale = random(5, seed=3)
    dispatcher = LocalDispatcher()

    def through(x_NL: torch.Tensor, weights_NK: torch.Tensor) -> torch.Tensor:
        sent = dispatcher.dispatch(x_NL, experts, 5)
        by_row = torch.repeat_interleave(scale, sent.counts_E).unsqueeze(1)
        return dispatcher.combine(sent.rows_RL * by_row, weights_NK, sent)

    expected = torch.stack([sum(weights[n, j] * scale[experts[n, j]] * x[n] for j in range(3)) for n in range(7)])
    torch.testing.assert_close(through(x, weights), expected)
    assert gradcheck(through, (x, weights))
