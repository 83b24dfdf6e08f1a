"""The whole model against the slow reference, and what must hold of it whatever the weights."""

import math
from dataclasses import fields, replace

import pytest
import torch

from marin.model.accounting import total_parameters
from marin.model.config import AttentionBackend, ComputeConfig, ModelConfig
from marin.model.features import CombineWeights, Features
from marin.model.transformer import Transformer
from marin.parallel.build import build_model
from marin.parallel.config import Recompute
from tests.model import reference
from tests.model.small import SMALL, lively, packed


def reference_loss(weights, batch, config=SMALL):
    sums = [
        reference.loss_sums(
            reference.logits_of(
                batch["tokens_BT"][b], batch["segments_BT"][b], batch["positions_BT"][b], weights, config
            ),
            batch["targets_BT"][b],
            batch["loss_mask_BT"][b],
        )
        for b in range(len(batch["tokens_BT"]))
    ]
    nll, z, count = (sum(s[i] for s in sums) for i in range(3))
    return nll, z, count


def check_equal_to_the_equations(config):
    model, batch = lively(config), packed()
    sums = model(**batch)
    (sums.total_sum / sums.token_count).backward()

    weights = {n: t.detach().clone().requires_grad_() for n, t in model.named_parameters()}
    buffers = {n: t.detach().clone() for n, t in model.named_buffers()}
    nll, z, count = reference_loss(weights | buffers, batch, config)
    ((nll + 1e-4 * z) / count).backward()

    assert sums.nll_sum.dtype == torch.float64
    assert int(sums.token_count) == count
    assert float(sums.nll_sum) == pytest.approx(float(nll.detach()), rel=1e-12)
    assert float(sums.z_sum) == pytest.approx(float(z.detach()), rel=1e-12)
    for name, parameter in model.named_parameters():
        expected = weights[name].grad
        difference = (parameter.grad - expected).norm() / expected.norm().clamp(min=1e-12)
        assert float(difference) < 1e-10, name
        assert float(expected.norm()) > 0, f"{name} takes no part"
    return model


def test_loss_and_every_gradient_equal_the_equations_in_float64():
    check_equal_to_the_equations(SMALL)


SWITCHES = (
    {"gated_norm": False, "combine_weights": CombineWeights.SOFTMAX},
    {"embedding_norm": False, "query_key_gain": True, "rotary_share": 0.25},
    {"short_convolution": False, "global_positions": True, "rotary_share": 1.0},
    {"exclusive_attention": False, "rotary_share": 0.0},
    {"head_gate": False, "latent_projection": False},
    {"exclusive_attention": False, "head_gate": False},
)


@pytest.mark.parametrize("switched", SWITCHES, ids=lambda switched: "+".join(switched))
def test_every_switch_changes_loss_and_gradients_as_the_equations_do(switched):
    sizes = {"layers": 2, "global_every": 2}
    if not switched.get("latent_projection", True):
        sizes |= {"latent_width": SMALL.width, "shared_experts": 0}
    config = replace(SMALL, features=Features(**switched), **sizes)
    model = check_equal_to_the_equations(config)
    assert sum(p.numel() for p in model.parameters()) + 2 * config.experts == total_parameters(config)


def test_every_switch_is_tried():
    assert {name for switched in SWITCHES for name in switched} == {field.name for field in fields(Features)}


def test_fp32_model_agrees_with_the_equations_to_rounding():
    model, batch = lively(dtype=torch.float32), packed()
    sums = model(**batch)
    weights = {n: t.detach().double() for n, t in [*model.named_parameters(), *model.named_buffers()]}
    nll, _, _ = reference_loss(weights, batch)
    assert sums.nll_sum.dtype == torch.float32
    assert float(sums.nll_sum) == pytest.approx(float(nll), rel=1e-5)


def test_logits_are_given_without_targets_and_stay_float64():
    model, batch = lively(), packed(batch=1)
    with torch.no_grad():
        logits = model(batch["tokens_BT"], batch["segments_BT"], batch["positions_BT"])
    weights = {n: t.detach() for n, t in [*model.named_parameters(), *model.named_buffers()]}
    expected = reference.logits_of(
        batch["tokens_BT"][0], batch["segments_BT"][0], batch["positions_BT"][0], weights, SMALL
    )
    assert logits.dtype == torch.float64
    torch.testing.assert_close(logits[0], expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("backend", [AttentionBackend.SDPA, AttentionBackend.BLOCKS])
def test_attention_back_ends_give_one_loss(backend):
    batch = packed(length=40)
    model = lively()
    state = model.state_dict()
    expected = model(**batch).nll_sum
    other = Transformer(SMALL, compute=ComputeConfig(attention=backend, attention_block=7, loss_chunk=100)).double()
    other.load_state_dict(state)
    assert float(other(**batch).nll_sum) == pytest.approx(float(expected), rel=1e-12)


def test_fully_masked_and_padded_rows_give_zero_and_no_nan():
    model, batch = lively(), packed()
    batch["segments_BT"][1] = -1
    batch["positions_BT"][1] = 0
    batch["targets_BT"][1] = -100
    batch["loss_mask_BT"][:] = False
    sums = model(**batch)
    sums.total_sum.backward()
    assert (float(sums.total_sum), float(sums.z_sum), int(sums.token_count)) == (0.0, 0.0, 0)
    assert all(not p.grad.isnan().any() and not p.grad.any() for p in model.parameters())


def test_stored_numbers_equal_the_formula_on_every_published_rung():
    for name in ("d768", "d1024", "d1536", "d2048", "hero"):
        config = ModelConfig.rung(name)
        with torch.device("meta"):
            model = Transformer(config)
        stored = sum(p.numel() for p in model.parameters()) + sum(r.bias.numel() for r in model.routers())
        assert stored == total_parameters(config)


def test_initial_weights_are_truncated_normal_and_neutral_elsewhere():
    config = ModelConfig.shaped(
        width=64,
        layers=2,
        head_dim=16,
        vocab_size=512,
        experts=8,
        experts_per_token=2,
        sequence_length=32,
        gate_rank=16,
    )
    model = Transformer(config)
    sigma = 0.5 / math.sqrt(64)
    for name, parameter in model.named_parameters():
        kind = name.rsplit(".", 1)[-1]
        if kind in ("gain", "latent_gain"):
            assert (parameter == 1).all()
        elif kind == "head_gate":
            assert (parameter == 0).all()
        elif kind == "taps":
            assert (parameter[0] == 1).all()
            assert (parameter[1:] == 0).all()
        else:
            assert float(parameter.abs().max()) <= 3 * sigma + 1e-6
            # The standard deviation of a normal cut at three sigma is 0.9866 sigma.
            error = 5 / math.sqrt(2 * parameter.numel())
            assert float(parameter.detach().std()) == pytest.approx(0.9866 * sigma, rel=error), name
    assert all((r.bias == 0).all() for r in model.routers())


def test_equal_seeds_give_equal_weights_and_other_seeds_others():
    first, second = Transformer(SMALL), Transformer(SMALL).double()
    second.reset_parameters(0)
    for (name, a), (_, b) in zip(first.named_parameters(), second.named_parameters(), strict=True):
        assert torch.equal(a.double(), b), name
    second.reset_parameters(1)
    assert not torch.equal(first.head.weight.double(), second.head.weight)


def test_shapes_that_differ_are_refused_by_name():
    batch = packed()
    with pytest.raises(ValueError, match="segments"):
        lively()(batch["tokens_BT"], batch["segments_BT"][:, 1:], batch["positions_BT"])


def test_dropout_repeats_when_a_block_is_computed_again():
    config, batch = replace(SMALL, layers=2, dropout=0.4), packed()
    gradients = []
    for recompute in (Recompute.NONE, Recompute.FULL):
        model = build_model(config, seed=0, dtype=torch.float64, recompute=recompute)
        torch.manual_seed(5)
        model(**batch).total_sum.backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, gradient in gradients[0].items():
        assert torch.equal(gradient, gradients[1][name]), name
    plain = build_model(replace(config, dropout=0.0), seed=0, dtype=torch.float64)
    plain(**batch).total_sum.backward()
    assert not torch.equal(plain.head.weight.grad, gradients[0]["head.weight"])
