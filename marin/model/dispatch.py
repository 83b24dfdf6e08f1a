"""Brings tokens to experts and their results back.

A dispatcher is a strategy: `dispatch` turns tokens into rows grouped by the experts of this process, `combine` turns
the experts' rows into the weighted sum of each token. The record between the two is frozen. Shape letters: see
`marin.model.outputs`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from marin.model.autograd import apply


@dataclass(frozen=True)
class Order:
    """The N·K assignments of tokens to experts sorted by expert."""

    token_R: Tensor
    """Token of each sorted row."""
    place_NK: Tensor
    """Sorted row of each assignment."""
    counts_E: Tensor
    """Rows of each expert (of all experts, wherever they lie)."""


def sort_by_expert(experts_NK: Tensor, experts: int) -> Order:
    """Stable order of the assignments by expert."""
    k = experts_NK.shape[1]
    flat = experts_NK.flatten()
    order_R = flat.argsort(stable=True)
    place = torch.empty_like(order_R)
    place[order_R] = torch.arange(order_R.numel(), device=order_R.device)
    counts = torch.zeros(experts, dtype=torch.int64, device=flat.device).scatter_add_(0, flat, torch.ones_like(flat))
    return Order(order_R // k, place.view_as(experts_NK), counts)


class _Spread(torch.autograd.Function):
    """Copies each token to its rows; the gradient is a gather and a sum, not a scatter."""

    @staticmethod
    def forward(ctx: Any, x_NL: Tensor, token_R: Tensor, place_NK: Tensor) -> Tensor:
        ctx.save_for_backward(place_NK)
        return x_NL.index_select(0, token_R)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (place_NK,) = ctx.saved_tensors
        return F.embedding_bag(place_NK, grads[0].contiguous(), mode="sum"), None, None


class _Gather(torch.autograd.Function):
    """Weighted sum of each token's rows."""

    @staticmethod
    def forward(ctx: Any, rows_RL: Tensor, weights_NK: Tensor, token_R: Tensor, place_NK: Tensor) -> Tensor:
        ctx.save_for_backward(rows_RL, weights_NK, token_R, place_NK)
        weights = weights_NK.to(rows_RL.dtype)
        return F.embedding_bag(place_NK, rows_RL, per_sample_weights=weights, mode="sum")

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        rows_RL, weights_NK, token_R, place_NK = ctx.saved_tensors
        grad = grads[0].contiguous()
        weight_R = torch.empty(place_NK.numel(), dtype=grad.dtype, device=grad.device)
        weight_R[place_NK.flatten()] = weights_NK.flatten().to(grad.dtype)
        grad_rows = grad.index_select(0, token_R)
        grad_weight_R = torch.linalg.vecdot(grad_rows, rows_RL)
        grad_rows.mul_(weight_R.unsqueeze(1))
        return grad_rows, grad_weight_R[place_NK].to(weights_NK.dtype), None, None


def spread(x_NL: Tensor, order: Order) -> Tensor:
    """Rows grouped by expert. [N, L] -> [R, L]"""
    rows: Tensor = apply(_Spread, x_NL, order.token_R, order.place_NK)
    return rows


def gather(rows_RL: Tensor, weights_NK: Tensor, order: Order) -> Tensor:
    """Weighted sum of each token's rows. [R, L] -> [N, L]"""
    y: Tensor = apply(_Gather, rows_RL, weights_NK, order.token_R, order.place_NK)
    return y


@dataclass(frozen=True)
class Dispatched:
    """Rows for the experts of this process, and what `combine` needs to bring them back."""

    rows_RL: Tensor
    counts_E: Tensor
    """Rows of each expert of this process."""
    order: Any
    """How the assignments of this process's tokens lie in what it sends: the dispatcher's own record."""
    dropped: int | Tensor
    """Assignments that no expert will compute, each told by one process only; a number or a tensor without dims."""
    exchange: Any = None
    """How what arrived is ordered: the dispatcher's own record."""
    exact: bool = True
    """Whether the counts add up to the number of rows; what is behind the last group comes back as zeros."""


class Dispatcher(Protocol):
    """How tokens reach the experts. What a back end of its own, a fused one for instance, has to keep to:

    - One object serves all layers and every micro-batch and keeps nothing between calls; whatever `combine` needs of
      `dispatch` travels in the frozen record, and of that the model reads only rows, counts, `exact` and `dropped`.
    - Tensors in the record may be detached copies of those that `dispatch` made: activations may be recomputed between
      the two, and then neither is called again.
    - Gradients reach `x_NL` through the rows, and the experts' rows and the weights through what `combine` returns, as
      in the sum over a token's experts that are not dropped.
    - Every process of the group calls both for every layer and micro-batch, also without tokens. What it does must not
      depend on timing: the same tokens give the same rows in the same order.
    """

    def dispatch(self, x_NL: Tensor, experts_NK: Tensor, experts: int) -> Dispatched:
        """Rows of latent width, grouped by the experts of this process; `experts` counts all of them, wherever they
        lie, in equal runs over the processes.
        """

    def combine(self, rows_RL: Tensor, weights_NK: Tensor, dispatched: Dispatched) -> Tensor:
        """The experts' rows back at their tokens, weighted and summed. [N, L]"""


@dataclass(frozen=True)
class LocalDispatcher:
    """All experts are in this process; nothing is dropped."""

    def dispatch(self, x_NL: Tensor, experts_NK: Tensor, experts: int) -> Dispatched:
        """Sort the tokens' copies by expert."""
        order = sort_by_expert(experts_NK, experts)
        return Dispatched(spread(x_NL, order), order.counts_E, order, dropped=0)

    def combine(self, rows_RL: Tensor, weights_NK: Tensor, dispatched: Dispatched) -> Tensor:
        """Pick each token's rows and sum them with their weights."""
        return gather(rows_RL, weights_NK, dispatched.order)
