"""Norms, convolution and attention, each against its equation in float64, with gradients."""

import warnings

import pytest
import torch
from torch.autograd import gradcheck
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.flop_counter import FlopCounterMode

from marin.model.activation import swiglu
from marin.model.attention import Attention
from marin.model.attention_backends import block_attention, choose_attention, sdpa_attention
from marin.model.config import AttentionBackend, ComputeConfig
from marin.model.convolution import ShortConvolution, shifted_sum
from marin.model.heads import exclusive_gated, rotate
from marin.model.normalisation import Norm, rms_norm
from marin.model.packing import Packing
from tests.model import reference
from tests.model.small import SMALL, packed

F64 = torch.float64


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def layout(batch: int = 2, length: int = 14) -> tuple[Packing, dict[str, torch.Tensor]]:
    made = packed(batch, length)
    return Packing(made["segments_BT"], made["positions_BT"]), made


def test_rms_norm_and_its_gradient():
    x, gain = random(3, 5, 8).requires_grad_(), random(8, seed=1).requires_grad_()
    torch.testing.assert_close(rms_norm(x, gain, eps=1e-5), reference.rms(x, gain))
    torch.testing.assert_close(rms_norm(x, None, eps=1e-5, scale=1.3), 1.3 * reference.rms(x))
    assert gradcheck(lambda a, b: rms_norm(a, b, eps=1e-5), (x, gain))
    assert gradcheck(lambda a: rms_norm(a, None, eps=1e-5, scale=1.3), (x,))


def test_rms_norm_takes_its_statistics_in_fp32_for_half_precision():
    x = (300 * random(4, 64)).to(torch.bfloat16)
    y = rms_norm(x, None, eps=1e-5)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.double(), reference.rms(x.double()), rtol=2**-8, atol=1e-6)


def test_norm_with_its_gate():
    module = Norm(8, 3, 1e-5).to(F64)
    with torch.no_grad():
        for i, parameter in enumerate(module.parameters()):
            parameter.copy_(random(*parameter.shape, seed=i))
    weights = {f"n.{name}": p for name, p in module.named_parameters()}
    x = random(2, 5, 8).requires_grad_()
    torch.testing.assert_close(module(x), reference.norm(x, weights, "n"))
    assert gradcheck(module, (x,))


def test_swiglu_is_silu_of_the_first_half_times_the_second():
    x = random(4, 10).requires_grad_()
    gate, up = x.chunk(2, -1)
    torch.testing.assert_close(swiglu(x), reference.silu(gate) * up)
    assert gradcheck(swiglu, (x,))


@pytest.mark.parametrize("length", [1, 3, 14])
def test_convolution_stops_at_document_borders(length: int):
    packing, made = layout(length=length)
    x, taps = random(2, length, 6).requires_grad_(), random(4, 6, seed=1).requires_grad_()
    module = ShortConvolution(6, 4).to(F64)
    with torch.no_grad():
        module.taps.copy_(taps)
    expected = torch.stack([reference.convolve(x[b], taps, made["segments_BT"][b]) for b in range(2)])
    torch.testing.assert_close(module(x, packing), expected)
    torch.testing.assert_close(shifted_sum(x, taps, packing), expected)
    direction = random(2, length, 6, seed=2)
    expected_grads = torch.autograd.grad(expected, (x, taps), direction)
    found = torch.autograd.grad(module(x, packing), (x, module.taps), direction)
    plain = torch.autograd.grad(shifted_sum(x, taps, packing), (x, taps), direction)
    for a, b, c in zip(found, plain, expected_grads, strict=True):
        torch.testing.assert_close(a, c)
        torch.testing.assert_close(b, c)


def test_not_even_an_infinity_crosses_a_document_border_in_the_convolution():
    packing = Packing(torch.tensor([[0, 0, 1, 1]]), torch.tensor([[0, 1, 0, 1]]))
    x = random(1, 4, 2)
    x[0, 1] = float("inf")
    module = ShortConvolution(2, 4).to(F64)
    with torch.no_grad():
        module.taps.fill_(1.0)
    assert torch.isfinite(module(x, packing)[0, 2:]).all()


def test_rotation_turns_adjacent_pairs_of_the_first_half():
    packing, made = layout()
    x = random(2, 14, 3, 8).requires_grad_()
    y = rotate(x, packing.rotation_BTP(8, 4, 10_000.0, F64))
    for b in range(2):
        for t in range(14):
            for h in range(3):
                torch.testing.assert_close(
                    y[b, t, h], reference.rotate(x[b, t, h], int(made["positions_BT"][b, t]), 10_000.0)
                )
    (grad,) = torch.autograd.grad(y, x, y.detach())
    torch.testing.assert_close(grad, x.detach())  # a rotation undoes itself in its gradient


def test_exclusive_output_has_no_part_along_its_own_value():
    y, v, gate = random(2, 5, 4, 8).requires_grad_(), random(2, 5, 2, 8, seed=1).requires_grad_(), torch.ones(2, 5, 4)
    out = exclusive_gated(y, v, gate.to(F64))
    along = (out * v.repeat_interleave(2, dim=2)).sum(-1)
    assert float(along.detach().abs().max()) < 1e-5
    gate64 = random(2, 5, 4, seed=2).requires_grad_()
    assert gradcheck(exclusive_gated, (y, v, gate64))


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("size", [3, 64])
def test_attention_back_ends_agree_with_their_gradients(window: int | None, size: int):
    packing, _ = layout()
    q, k, v = random(2, 14, 4, 8), random(2, 14, 2, 8, seed=1), random(2, 14, 2, 8, seed=2)
    inputs = [x.requires_grad_() for x in (q, k, v)]
    direction = random(2, 14, 4, 8, seed=3)
    one, other = block_attention(*inputs, packing, window, size), sdpa_attention(*inputs, packing, window)
    torch.testing.assert_close(one, other)
    for a, b in zip(
        torch.autograd.grad(one, inputs, direction), torch.autograd.grad(other, inputs, direction), strict=True
    ):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("window", [None, 5])
def test_flex_block_mask_hides_what_the_other_back_ends_hide(window: int | None):
    packing, _ = layout(length=150)
    q, k, v = (random(2, 150, h, 8, seed=i).float() for i, h in enumerate((4, 2, 2)))
    heads_first = [x.transpose(1, 2) for x in (q, k, v)]
    with warnings.catch_warnings():
        # Uncompiled it is slow and says so; here only the mask is asked for.
        warnings.simplefilter("ignore")
        y = flex_attention(*heads_first, block_mask=packing.block_mask(window), enable_gqa=True).transpose(1, 2)
    torch.testing.assert_close(y, block_attention(q, k, v, packing, window, 64), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layer", [0, 3])
def test_attention_of_local_and_global_layers_equals_the_equations(layer: int):
    packing, made = layout()
    module = Attention(SMALL, layer, ComputeConfig()).to(F64)
    with torch.no_grad():
        for i, parameter in enumerate(module.parameters()):
            parameter.copy_(0.4 * random(*parameter.shape, seed=i))
    weights = {f"a.{name}": p for name, p in module.named_parameters()}
    u = random(2, 14, 16)
    expected = [
        reference.attention(u[b], weights, "a", SMALL, layer, made["segments_BT"][b], made["positions_BT"][b])
        for b in range(2)
    ]
    torch.testing.assert_close(module(u, packing), torch.stack(expected))


@pytest.mark.parametrize("window", [None, 4, 9])
@pytest.mark.parametrize("documents", ["packed", "one"])
def test_a_block_holds_no_key_that_all_its_queries_are_hidden_from(window: int | None, documents: str):
    packing, _ = layout(length=40)
    if documents == "one":
        packing = Packing(torch.zeros(2, 40, dtype=torch.int32), torch.arange(40).expand(2, 40))
    visible = packing.visible_BTT(window)
    for block in packing.query_blocks(window, 7, F64):
        rows = visible[:, block.start : block.stop]
        assert block.first == int(rows.any(0).any(0).nonzero().min())
        assert rows[:, :, block.first : block.masked].all()
        bias = torch.where(rows[:, :, block.masked : block.stop], 0.0, float("-inf"))
        assert torch.equal(block.bias_B1QK, bias.to(F64).unsqueeze(1))


def test_scores_that_the_window_hides_are_never_computed():
    length, window, size = 256, 16, 8
    packing = Packing(torch.zeros(1, length, dtype=torch.int32), torch.arange(length).expand(1, length))
    inputs = [random(1, length, 1, 4, seed=i).requires_grad_() for i in range(3)]

    def products(window: int | None) -> int:
        with FlopCounterMode(display=False) as counter:
            block_attention(*inputs, packing, window, size).sum().backward()
        return counter.get_total_flops()

    # Two products of queries and keys forward, four backward; beside what is visible, only the corners of a block.
    channels, matrices = 4, 6
    visible = int(packing.visible_BTT(window).sum())
    assert products(window) <= 2 * matrices * channels * (visible + length * size)
    assert products(None) > 5 * products(window)


def test_flex_attention_is_refused_where_it_cannot_train():
    with pytest.raises(ValueError, match="take blocks or sdpa"):
        choose_attention(AttentionBackend.FLEX, "cpu")
    assert choose_attention(AttentionBackend.AUTO, "cuda") is AttentionBackend.FLEX
