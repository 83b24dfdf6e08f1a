"""A capacity drops what its rule says, in the order of tokens and choices, and computes the rest exactly."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from torch.autograd import gradcheck

from marin.model.capacity import CapacityDispatcher
from marin.model.config import Balancing, BalancingConfig, CapacityConfig
from marin.model.dispatch import LocalDispatcher
from marin.model.hugging_face.naming import config_from_folder, config_to_folder
from tests.model.small import SMALL, lively, packed
from tests.parallel.limited_exchange import case, kept_by_rule, reference_sum

RANKS, EXPERTS = 4, 8
LIMITS = [
    CapacityConfig(1.15, 1.15),
    CapacityConfig(1.0, 1.0),
    CapacityConfig(4.0, 1.0),
    CapacityConfig(2.0, 1.5),
    CapacityConfig(4.0, 4.0),
]


def test_the_rule_keeps_first_choices_and_early_tokens_of_every_sender_in_turn():
    # Two ranks with four tokens each and two experts each; everyone's first choice is expert 0.
    experts = torch.tensor([[0, 1], [0, 2], [0, 3], [0, 1]] * 2)
    kept, dropped = kept_by_rule(experts, 4, 2, CapacityConfig(1.0, 1.0))
    # Each sender may send four of its eight to rank 0: its four first choices. Both send four, which is all it takes.
    assert kept.tolist() == [[True, False], [True, True], [True, True], [True, False]] * 2
    assert dropped == 4
    kept, _ = kept_by_rule(experts, 4, 2, CapacityConfig(1.5, 1.0))
    # Six each are sent to rank 0 (all that there are), which takes eight: four of each sender.
    assert kept.tolist() == [[True, False], [True, True], [True, True], [True, False]] * 2


@pytest.mark.parametrize("capacity", LIMITS, ids=str)
@pytest.mark.parametrize("skew", [0.0, 1.0, 5.0])
def test_outputs_gradients_and_drops_are_those_of_the_rule(capacity: CapacityConfig, skew: float):
    x, experts, weights, scale = case(tokens=6 * RANKS, experts=EXPERTS, k=3, skew=skew)
    dispatcher = CapacityDispatcher(capacity, RANKS)
    kept, dropped = kept_by_rule(experts, EXPERTS, RANKS, capacity)
    results = []
    for ours in (True, False):
        leaves = [t.clone().requires_grad_() for t in (x, weights, scale)]
        if ours:
            sent = dispatcher.dispatch(leaves[0], experts, EXPERTS)
            assert int(sent.dropped) == dropped == int((~kept).sum())
            by_row = torch.repeat_interleave(leaves[2], sent.counts_E, dim=0)
            y = dispatcher.combine(sent.rows_RL * by_row, leaves[1], sent)
        else:
            y = reference_sum(leaves[0], experts, leaves[1], leaves[2], kept)
        (y * y).sum().backward()
        results.append([y.detach(), *(leaf.grad for leaf in leaves)])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)
    assert not results[0][2][~kept].any(), "a dropped assignment's weight has a gradient"
    if capacity == CapacityConfig(4.0, 4.0):
        assert not dropped
    elif skew:
        assert dropped


def test_gradients_agree_with_finite_differences():
    x, experts, weights, scale = case(tokens=8, experts=4, k=2, skew=2.0)
    dispatcher = CapacityDispatcher(CapacityConfig(1.0, 1.0), 2)

    def through(x_NL: torch.Tensor, weights_NK: torch.Tensor) -> torch.Tensor:
        sent = dispatcher.dispatch(x_NL, experts, 4)
        return dispatcher.combine(sent.rows_RL * scale.repeat_interleave(sent.counts_E, 0), weights_NK, sent)

    assert gradcheck(through, (x.requires_grad_(), weights.requires_grad_()))


def test_dropping_is_counted_in_training_and_evaluation_drops_nothing():
    model, batch = lively(), packed(batch=4)
    model.set_dispatcher(CapacityDispatcher(CapacityConfig(1.0, 1.0), 2), LocalDispatcher())
    whole = lively()
    assert float((model(**batch).nll_sum - whole(**batch).nll_sum).abs().detach()) > 1e-6
    assert 0 < model.update_router_bias().summary()["moe/dropped_fraction"] < 0.5
    whole.update_router_bias()
    for form in (model, whole):
        form.eval()
    for a, b in zip(model.routers(), whole.routers(), strict=True):
        a.bias.copy_(b.bias)
    with torch.no_grad():
        assert torch.equal(model(**batch).nll_sum, whole(**batch).nll_sum)


def test_an_exported_config_keeps_its_capacity_and_one_from_before_there_were_any_has_none():
    balancing = BalancingConfig(kind=Balancing.AUXILIARY, capacity=CapacityConfig(2.0, 1.5))
    config = replace(SMALL, balancing=balancing)
    told = json.loads(json.dumps(config_to_folder(config)))
    assert config_from_folder(told) == config
    for name in ("auxiliary_coefficient", "router_z_loss", "capacity"):
        del told["router_balancing"][name]
    assert config_from_folder(told).balancing == BalancingConfig(kind=Balancing.AUXILIARY)


def test_a_capacity_that_drops_even_balanced_tokens_is_refused():
    for field in ("factor_sender", "factor_receiver"):
        with pytest.raises(ValueError, match=rf"balancing.capacity.{field} is 0.9"):
            CapacityConfig(**{field: 0.9})
    assert replace(BalancingConfig(), capacity=CapacityConfig()).capacity.factor_sender == 1.15
