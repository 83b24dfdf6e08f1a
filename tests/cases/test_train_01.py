"""The loss is the sum over counted tokens divided by their number, however they are grouped into micro-batches."""

import math
from itertools import chain

import pytest
import torch
from torch import nn

from marin.model.loss import chunked_loss
from marin.model.outputs import LossSums

LOSSES = [[2.0, 4.0, 6.0], [10.0, 9.0, 9.0], [1.0] * 9, [5.0, 5.0]]
MASKS = [[1, 1, 1], [1, 0, 0], [1] * 9, [0, 0]]
TOKEN_MEAN = 31 / 13


def joined(parts: list[list]) -> list:
    return list(chain.from_iterable(parts))


def micro_batch(losses: list[float], mask: list[int], factor: torch.Tensor) -> LossSums:
    """Loss sums of tokens that have exactly these losses when `factor` is 1.

    With two words, a target whose logit is lower by x has the loss log(1 + exp(x)).
    """
    gaps = torch.tensor([math.log(math.expm1(loss)) for loss in losses], dtype=torch.float64)
    x_ND = torch.stack((-gaps, torch.zeros_like(gaps)), dim=1) * factor
    targets = torch.zeros(len(losses), dtype=torch.int64)
    return chunked_loss(
        x_ND, torch.eye(2, dtype=torch.float64), targets, torch.tensor(mask).bool(), z_loss=0.0, chunk=6
    )


@pytest.mark.parametrize("grouping", [[4], [2, 2], [1, 1, 1, 1], [1, 3]], ids=str)
def test_loss_and_gradient_do_not_depend_on_the_grouping(grouping: list[int]):
    factor = nn.Parameter(torch.ones((), dtype=torch.float64))
    tokens = sum(sum(mask) for mask in MASKS)
    total, start = 0.0, 0
    for size in grouping:
        losses = joined(LOSSES[start : start + size])
        mask = joined(MASKS[start : start + size])
        start += size
        sums = micro_batch(losses, mask, factor)
        (sums.total_sum / tokens).backward()
        total += float(sums.total_sum.detach()) / tokens
    assert tokens == 13
    assert total == pytest.approx(TOKEN_MEAN, rel=1e-12)

    alone = torch.ones((), dtype=torch.float64, requires_grad=True)
    gaps = torch.tensor([math.log(math.expm1(x)) for x in joined(LOSSES)], dtype=torch.float64)
    real = torch.tensor(joined(MASKS), dtype=torch.float64)
    (torch.log1p(torch.exp(gaps * alone)) * real).sum().div(13).backward()
    assert float(factor.grad) == pytest.approx(float(alone.grad), rel=1e-12)


def test_a_micro_batch_without_counted_tokens_adds_nothing_and_no_nan():
    factor = nn.Parameter(torch.ones((), dtype=torch.float64))
    sums = micro_batch(LOSSES[3], MASKS[3], factor)
    (sums.total_sum / 13).backward()
    assert (float(sums.nll_sum), int(sums.token_count), float(factor.grad)) == (0.0, 0, 0.0)


def test_validation_uses_the_same_sums():
    with torch.no_grad():
        sums = [micro_batch(x, m, torch.ones((), dtype=torch.float64)) for x, m in zip(LOSSES, MASKS, strict=True)]
    mean = sum(float(s.nll_sum) for s in sums) / sum(int(s.token_count) for s in sums)
    assert mean == pytest.approx(TOKEN_MEAN, rel=1e-12)
