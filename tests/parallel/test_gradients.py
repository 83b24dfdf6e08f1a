"""Norms by group of parameters, against sums over the tensors by hand; on ranks they are compared in test_parity."""

import pytest

from marin.parallel.gradients import GROUPS, gradient_norm, gradient_norms_by_group, group_of, weight_norms_by_group
from tests.model.small import lively, packed


def test_every_parameter_of_the_model_has_a_group_and_every_group_is_used():
    assert {group_of(name) for name, _ in lively().named_parameters()} == set(GROUPS) - {"other"}
    for name, group in {
        "embedding.weight": "embedding",
        "embedding_norm.gate_down": "norms",
        "blocks.0.attention.output": "attention",
        "blocks.0.attention.head_gate": "gates",
        "blocks.0.attention.key_convolution.taps": "convolutions",
        "blocks.3.moe.router.weight": "router",
        "blocks.3.moe.latent_up": "latent",
        "blocks.3.moe.latent_gain": "norms",
        "blocks.3.moe.experts.down": "experts",
        "blocks.3.shared.down": "shared",
        "head.weight": "head",
        "future.part": "other",
    }.items():
        assert group_of(name) == group


def test_norms_by_group_are_the_roots_of_summed_squares_and_make_up_the_whole_norm():
    model = lively()
    assert gradient_norms_by_group(model) == dict.fromkeys(GROUPS, 0.0)
    sums = model(**packed())
    (sums.total_sum / sums.token_count).backward()
    found = gradient_norms_by_group(model)
    for group in GROUPS:
        own = [p for n, p in model.named_parameters() if group_of(n) == group]
        assert found[group] == pytest.approx(sum(float(p.grad.square().sum()) for p in own) ** 0.5, rel=1e-12)
        weights = sum(float(p.detach().square().sum()) for p in own) ** 0.5
        assert weight_norms_by_group(model)[group] == pytest.approx(weights, rel=1e-12)
    assert sum(n**2 for n in found.values()) == pytest.approx(float(gradient_norm(model)) ** 2, rel=1e-12)
