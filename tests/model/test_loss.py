"""The chunked loss against logits that are all there."""

import math

import pytest
import torch
from torch.autograd import gradcheck
from torch.utils._python_dispatch import TorchDispatchMode

from marin.model.config import ModelConfig
from marin.model.loss import chunk_for, chunked_loss
from tests.model import reference

F64 = torch.float64


def inputs(tokens: int = 9, width: int = 5, vocab: int = 13) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(tokens, width, dtype=F64, generator=generator).requires_grad_()
    weight = torch.randn(vocab, width, dtype=F64, generator=generator).requires_grad_()
    targets = torch.randint(0, vocab, (tokens,), generator=generator)
    mask = torch.rand(tokens, generator=generator) < 0.7
    return x, weight, targets, mask


@pytest.mark.parametrize("chunk", [1, 30, 10_000])
def test_sums_and_gradients_equal_the_equation_whatever_the_chunk(chunk: int):
    x, weight, targets, mask = inputs()
    sums = chunked_loss(x, weight, targets, mask, z_loss=0.1, chunk=chunk)
    nll, z, count = reference.loss_sums(x @ weight.T, targets, mask)
    torch.testing.assert_close(sums.nll_sum, nll.detach())
    torch.testing.assert_close(sums.z_sum, z.detach())
    torch.testing.assert_close(sums.total_sum, nll + 0.1 * z)
    assert int(sums.token_count) == count
    expected = torch.autograd.grad((nll + 0.1 * z) / count, (x, weight))
    found = torch.autograd.grad(sums.total_sum / count, (x, weight))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)
    assert gradcheck(lambda a, b: chunked_loss(a, b, targets, mask, z_loss=0.1, chunk=30).total_sum, (x, weight))


def test_only_the_total_carries_a_gradient():
    x, weight, targets, mask = inputs()
    sums = chunked_loss(x, weight, targets, mask, z_loss=0.1, chunk=30)
    assert sums.total_sum.requires_grad
    assert not sums.nll_sum.requires_grad
    assert not sums.z_sum.requires_grad


def test_targets_of_masked_tokens_are_never_read():
    x, weight, targets, mask = inputs()
    hidden = torch.where(mask, targets, -100)
    a = chunked_loss(x, weight, targets, mask, z_loss=0.1, chunk=30)
    b = chunked_loss(x, weight, hidden, mask, z_loss=0.1, chunk=30)
    assert torch.equal(a.total_sum, b.total_sum)


def test_huge_logits_stay_finite():
    x, weight, targets, mask = inputs()
    sums = chunked_loss(x * 1e4, weight, targets, mask, z_loss=0.0, chunk=30)
    sums.total_sum.backward()
    assert torch.isfinite(sums.nll_sum)
    assert torch.isfinite(x.grad).all()


class Watch(TorchDispatchMode):
    """Notes the shapes of all tensors that are made."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[tuple[int, ...]] = []
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        made = [t for t in (out if isinstance(out, tuple | list) else [out]) if isinstance(t, torch.Tensor)]
        self.shapes += [tuple(t.shape) for t in made]
        self.names.append(func.name())
        return out


def test_a_chunk_on_an_accelerator_holds_a_thousand_tokens_and_more_of_the_largest_vocabulary():
    vocabulary = ModelConfig.hero().vocab_size
    assert chunk_for(None, "cuda") // vocabulary > 1000
    assert 4 * chunk_for(None, "cpu") <= 8 << 20
    assert chunk_for(7, "cuda") == chunk_for(7, "cpu") == 7


def test_memory_holds_one_chunk_of_logits():
    x, weight, targets, mask = inputs(tokens=64, width=4, vocab=50)
    with Watch() as watch:
        chunked_loss(x, weight, targets, mask, z_loss=0.1, chunk=400).total_sum.backward()
    assert max(math.prod(shape) for shape in watch.shapes) <= 400


def test_evaluation_makes_no_gradient():
    x, weight, targets, mask = inputs(tokens=64, width=4, vocab=50)
    trained = chunked_loss(x, weight, targets, mask, z_loss=0.1, chunk=400)
    with torch.no_grad(), Watch() as watch:
        sums = chunked_loss(x, weight, targets, mask, z_loss=0.1, chunk=400)
    assert torch.equal(sums.nll_sum, trained.nll_sum)
    assert not any(name.startswith("aten::scatter_add") for name in watch.names)
