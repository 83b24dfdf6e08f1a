"""All ways to multiply experts' matrices give the same numbers and read no row that belongs to no expert."""

import logging
from dataclasses import replace

import pytest
import torch

from marin.model.config import ComputeConfig, ExpertBackend
from marin.model.experts import COMPUTE, Experts, choose_experts
from tests.model import reference
from tests.model.small import SMALL

AUTO, LOOP, PADDED, GROUPED = ExpertBackend.AUTO, ExpertBackend.LOOP, ExpertBackend.PADDED, ExpertBackend.GROUPED
BACKENDS = (LOOP, PADDED, GROUPED)
LATENT, INNER = 8, 12


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def by_hand(rows, gate_up, down, counts):
    """One row after the other, from the equation."""
    owner = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts)).tolist()
    found = [reference.swiglu(rows[i], *gate_up[e].chunk(2), down[e]) for i, e in enumerate(owner)]
    return torch.stack(found) if found else rows[:0] + 0 * (gate_up.sum() + down.sum())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("behind", [0, 5])
@pytest.mark.parametrize("counts", [[3, 0, 4, 2], [0, 0, 9, 0], [0, 0, 0, 0], [1, 1, 1, 1]])
def test_outputs_and_gradients_are_those_of_the_equation_whatever_lies_behind_the_last_group(
    backend: ExpertBackend, behind: int, counts: list[int]
):
    dtype = torch.float32 if backend is GROUPED else torch.float64
    close = {"rtol": 1e-4, "atol": 1e-5} if backend is GROUPED else {"rtol": 1e-11, "atol": 1e-13}
    used = sum(counts)
    rows = random(used + behind, LATENT)
    wanted = [rows[:used], random(4, 2 * INNER, LATENT, seed=1), random(4, INNER, LATENT, seed=2)]
    leaves = [x.clone().requires_grad_() for x in wanted]
    upstream = random(used, LATENT, seed=3)
    expected = by_hand(*leaves, counts)
    expected.backward(upstream)
    rows[used:] = float("nan")
    given = [rows, *wanted[1:]]
    poisoned = [x.to(dtype).clone().requires_grad_() for x in given]
    y = COMPUTE[backend](*poisoned, torch.tensor(counts), behind == 0)
    # What comes after must not matter either.
    y.backward(torch.cat((upstream, torch.full((behind, LATENT), float("nan"), dtype=torch.float64))).to(dtype))
    torch.testing.assert_close(y[:used].double(), expected, **close)
    torch.testing.assert_close(poisoned[0].grad[:used].double(), leaves[0].grad, **close)
    assert not y[used:].any()
    assert not poisoned[0].grad[used:].any()
    for ours, reference_leaf in zip(poisoned[1:], leaves[1:], strict=True):
        torch.testing.assert_close(ours.grad.double(), reference_leaf.grad, **close)
    for e, count in enumerate(counts):
        if not count:
            assert not poisoned[1].grad[e].any()
            assert not poisoned[2].grad[e].any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_expanded_gradient_and_rows_with_gaps_are_taken(backend: ExpertBackend):
    counts = [3, 0, 4, 2]
    inputs = [random(9, 2 * LATENT), random(4, 2 * INNER, LATENT, seed=1), random(4, INNER, LATENT, seed=2)]
    leaves = [x.float().requires_grad_() for x in inputs]
    COMPUTE[backend](leaves[0][:, ::2], *leaves[1:], torch.tensor(counts), True).sum().backward()
    exact = [x.clone().requires_grad_() for x in inputs]
    by_hand(exact[0][:, ::2], *exact[1:], counts).sum().backward()
    for ours, theirs in zip(leaves, exact, strict=True):
        torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("device", "dtype", "sizes", "few", "expected", "reason"),
    [
        ("cuda", torch.bfloat16, (64, 64), False, GROUPED, "aligned rows"),
        ("cuda", torch.bfloat16, (60, 64), False, LOOP, "rows of 60 and 64 values of 2 bytes are not multiples of 16"),
        ("cuda", torch.float32, (64, 64), False, LOOP, "takes bf16, not torch.float32"),
        ("cuda", torch.float32, (64, 64), True, PADDED, "takes bf16, not torch.float32"),
        ("cpu", torch.float32, (64, 64), False, LOOP, "more than 32 rows an expert"),
        ("cpu", torch.float32, (64, 64), True, GROUPED, "fewer than 32 rows an expert"),
        ("cpu", torch.float32, (62, 64), True, PADDED, "rows of 62 and 64 values of 4 bytes are not multiples of 16"),
        ("cpu", torch.float64, (64, 64), True, PADDED, "no float64"),
    ],
)
def test_the_choice_follows_device_type_and_shape_and_is_logged_with_its_reason(
    caplog, device, dtype, sizes, few, expected, reason
):
    choose_experts.cache_clear()
    caplog.set_level(logging.INFO, "marin.model.experts")
    for _ in range(2):
        assert choose_experts(AUTO, device, dtype, *sizes, few) is expected
    assert len(caplog.records) == 1, "a reason is told once"
    assert f"experts: {expected.value}" in caplog.text
    assert reason in caplog.text


def test_the_grouped_product_is_refused_by_its_rule_where_it_is_asked_for():
    for dtype, latent, rule in (
        (torch.bfloat16, 60, "not multiples of 16 bytes"),
        (torch.float64, 64, "has no float64"),
    ):
        with pytest.raises(ValueError, match=rule):
            choose_experts(GROUPED, "cpu", dtype, latent, 64)


def test_a_model_in_rows_that_are_not_aligned_trains_and_says_no_to_grouped():
    sizes = {"latent_width": 7, "expert_width": 5}
    config = replace(SMALL, **sizes)
    rows, counts = torch.randn(6, 7, requires_grad=True), torch.tensor([1, 0, 2, 3, 0, 0])
    for backend in (AUTO, PADDED, LOOP):
        experts = Experts(config, ComputeConfig(experts=backend))
        torch.nn.init.normal_(experts.gate_up)
        torch.nn.init.normal_(experts.down)
        experts(rows, counts).sum().backward()
        assert experts.down.grad.isfinite().all()
    with pytest.raises(ValueError, match=r"compute\.experts is grouped, but rows of 7 and 5 values of 4 bytes"):
        Experts(config, ComputeConfig(experts=GROUPED))(rows, counts)
