"""Which assignments are dropped where a capacity limits what travels between ranks, and buffers of fixed size for the
rest.

The rule, by order and never by timing:

1. A rank sends each rank at most floor(factor_sender · N·K / ranks) of its N·K assignments, but at least 1. Tokens'
   first choices go before their second ones and so on, and among equal choices earlier tokens before later ones. What
   is sent lies in this order in the slots for that rank; what does not fit is dropped.
2. A rank takes at most floor(factor_receiver · N·K) of what is sent to it, but at least 1. First slots of all senders
   go before their second ones and so on, and among equal slots those of lower ranks. The rest is dropped.

All sizes follow from N, K and the number of ranks, which every rank has alike, so nothing waits for the device to learn
them. Shape letters: see `marin.model.outputs`; S counts the slots of one sender for all ranks, C those for one rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from marin.model.autograd import apply
from marin.model.config import CapacityConfig
from marin.model.dispatch import Dispatched


@dataclass(frozen=True)
class Slots:
    """What one rank sends: S = ranks · C slots, those of each receiver together."""

    slot_NK: Tensor
    """Slot of each assignment; -1 for a dropped one."""
    token_S: Tensor
    """Token in each slot; 0 in an empty one."""
    expert_S: Tensor
    """Expert of each slot, counted from the receiver's first; the number of a receiver's experts in an empty one."""
    dropped: Tensor


def sender_limit(capacity: CapacityConfig, tokens: int, experts_per_token: int, ranks: int) -> int:
    """Assignments that a rank may send to each rank (C)."""
    assignments = tokens * experts_per_token
    return min(assignments, max(1, int(capacity.factor_sender * assignments / ranks)))


def receiver_limit(capacity: CapacityConfig, tokens: int, experts_per_token: int, ranks: int) -> int:
    """Assignments that a rank takes of all that are sent to it."""
    assignments = tokens * experts_per_token
    most = ranks * sender_limit(capacity, tokens, experts_per_token, ranks)
    return min(most, max(1, int(capacity.factor_receiver * assignments)))


@torch.no_grad()
def fill_slots(experts_NK: Tensor, experts: int, ranks: int, limit: int) -> Slots:
    """The first rule, with `limit` slots for each of `ranks` receivers, which have equal runs of the experts."""
    n, k = experts_NK.shape
    local = experts // ranks
    # One assignment after the other in the order of the rule: choice by choice.
    expert_A = experts_NK.t().flatten()
    receiver_A = expert_A // local
    order_A = receiver_A.argsort(stable=True)
    sent_G = torch.zeros(ranks, dtype=torch.int64, device=expert_A.device)
    sent_G.scatter_add_(0, receiver_A, torch.ones_like(receiver_A))
    first_G = sent_G.cumsum(0) - sent_G
    place_A = torch.empty_like(order_A)
    place_A[order_A] = torch.arange(n * k, device=order_A.device)
    place_A -= first_G[receiver_A]
    fits_A = place_A < limit
    # Dropped ones all go to a slot of their own behind the others, which is cut off.
    slot_A = torch.where(fits_A, receiver_A * limit + place_A, ranks * limit)
    token_S = torch.zeros(ranks * limit + 1, dtype=torch.int64, device=expert_A.device)
    token_S.scatter_(0, slot_A, torch.arange(n, device=expert_A.device).repeat(k))
    expert_S = torch.full_like(token_S, local).scatter_(0, slot_A, expert_A % local)
    slot_NK = torch.where(fits_A, slot_A, -1).view(k, n).t().contiguous()
    return Slots(slot_NK, token_S[:-1], expert_S[:-1], (~fits_A).sum())


@dataclass(frozen=True)
class Arrival:
    """What one rank takes of the slots that were sent to it."""

    taken_M: Tensor
    """Slot of each row, by expert; the rows behind the last expert's are of slots that are not taken."""
    counts_E: Tensor
    dropped: Tensor


@torch.no_grad()
def take_slots(expert_S: Tensor, experts: int, ranks: int, limit: int) -> Arrival:
    """The second rule, for the experts of the slots that arrived from each of `ranks` senders in turn."""
    sent_CG = (expert_S < experts).view(ranks, -1).t()
    takes_CG = sent_CG & (sent_CG.flatten().cumsum(0).view_as(sent_CG) <= limit)
    takes_S = takes_CG.t().flatten()
    kept_S = torch.where(takes_S, expert_S, experts)
    counts_E = torch.zeros(experts + 1, dtype=torch.int64, device=expert_S.device)
    counts_E.scatter_add_(0, kept_S, torch.ones_like(kept_S))
    taken_M = kept_S.argsort(stable=True)[:limit]
    return Arrival(taken_M, counts_E[:-1], sent_CG.sum() - takes_S.sum())


class _Fill(torch.autograd.Function):
    """Copies tokens into their slots, zeros into empty ones; the gradient is a gather and a sum, not a scatter."""

    @staticmethod
    def forward(ctx: Any, x_NL: Tensor, slots: Slots, is_empty_S1: Tensor) -> Tensor:
        ctx.slot_NK = slots.slot_NK
        return x_NL.index_select(0, slots.token_S).masked_fill_(is_empty_S1, 0)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _of_assignments(grads[0], ctx.slot_NK).sum(1), None, None


class _Collect(torch.autograd.Function):
    """Weighted sum of what lies in each token's slots; a dropped assignment adds nothing."""

    @staticmethod
    def forward(ctx: Any, rows_SL: Tensor, weights_NK: Tensor, slots: Slots, is_empty_S1: Tensor) -> Tensor:
        ctx.save_for_backward(rows_SL, weights_NK, is_empty_S1)
        ctx.slots = slots
        picked_NKL = _of_assignments(rows_SL, slots.slot_NK)
        return torch.bmm(weights_NK.to(rows_SL.dtype).unsqueeze(1), picked_NKL).squeeze(1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        rows_SL, weights_NK, is_empty_S1 = ctx.saved_tensors
        slots: Slots = ctx.slots
        grad_NL = grads[0].contiguous()
        weight_S = grad_NL.new_zeros(rows_SL.shape[0] + 1)
        # A dropped assignment's slot, -1, is the last one, which is cut off.
        weight_S[slots.slot_NK.flatten()] = weights_NK.flatten().to(grad_NL.dtype)
        grad_rows = grad_NL.index_select(0, slots.token_S).mul_(weight_S[:-1].unsqueeze(1)).masked_fill_(is_empty_S1, 0)
        picked_NKL = _of_assignments(rows_SL, slots.slot_NK)
        grad_weights = torch.bmm(picked_NKL, grad_NL.unsqueeze(2)).squeeze(2)
        return grad_rows, grad_weights.to(weights_NK.dtype), None, None


def _of_assignments(rows_SL: Tensor, slot_NK: Tensor) -> Tensor:
    """The row of every assignment, zeros for a dropped one. [N, K, L]"""
    n, k = slot_NK.shape
    if not rows_SL.shape[0]:
        return rows_SL.new_zeros(n, k, rows_SL.shape[1])
    picked = rows_SL.index_select(0, slot_NK.flatten().clamp(min=0)).view(n, k, -1)
    return picked.masked_fill_((slot_NK < 0).unsqueeze(2), 0)


def fill(x_NL: Tensor, slots: Slots, experts: int) -> Tensor:
    """The rows to send; `experts` counts those of one receiver. [N, L] -> [S, L]"""
    rows: Tensor = apply(_Fill, x_NL, slots, (slots.expert_S == experts).unsqueeze(1))
    return rows


def collect(rows_SL: Tensor, weights_NK: Tensor, slots: Slots, experts: int) -> Tensor:
    """Weighted sum of each token's rows that came back. [S, L] -> [N, L]"""
    y: Tensor = apply(_Collect, rows_SL, weights_NK, slots, (slots.expert_S == experts).unsqueeze(1))
    return y


def put_back(rows_ML: Tensor, arrival: Arrival, slots: int) -> Tensor:
    """The experts' rows in the slots that they came in, zeros in all others. [M, L] -> [S, L]"""
    return rows_ML.new_zeros(slots, rows_ML.shape[1]).index_copy(0, arrival.taken_M, rows_ML)


@dataclass(frozen=True)
class CapacityDispatcher:
    """All experts in this process, and what is dropped when they lie on `ranks` ranks that read equal parts of the
    tokens in order: the plain form of the limited exchange.
    """

    capacity: CapacityConfig
    ranks: int

    def dispatch(self, x_NL: Tensor, experts_NK: Tensor, experts: int) -> Dispatched:
        """Fill every sender's slots and let every receiver take its own, one after the other."""
        if experts % self.ranks or x_NL.shape[0] % self.ranks:
            raise ValueError(f"{experts} experts and {x_NL.shape[0]} tokens are not divided by {self.ranks} ranks")
        local = experts // self.ranks
        size = (x_NL.shape[0] // self.ranks, experts_NK.shape[1], self.ranks)
        limit = sender_limit(self.capacity, *size)
        sent = [fill_slots(part, experts, self.ranks, limit) for part in experts_NK.chunk(self.ranks)]
        filled = [fill(x, slots, local) for x, slots in zip(x_NL.chunk(self.ranks), sent, strict=True)]
        # [sender, receiver, C] -> [receiver, sender, C]
        rows = torch.stack(filled).view(self.ranks, self.ranks, limit, -1).transpose(0, 1).flatten(1, 2)
        expert = torch.stack([slots.expert_S for slots in sent]).view(self.ranks, self.ranks, limit)
        most = receiver_limit(self.capacity, *size)
        arrivals = [take_slots(e.flatten(), local, self.ranks, most) for e in expert.transpose(0, 1)]
        taken = [
            part.index_select(0, arrival.taken_M)[: int(arrival.counts_E.sum())]
            for part, arrival in zip(rows, arrivals, strict=True)
        ]
        dropped = torch.stack([s.dropped for s in sent] + [a.dropped for a in arrivals]).sum()
        counts_E = torch.cat([arrival.counts_E for arrival in arrivals])
        return Dispatched(torch.cat(taken), counts_E, sent, dropped, arrivals)

    def combine(self, rows_RL: Tensor, weights_NK: Tensor, dispatched: Dispatched) -> Tensor:
        """Put every receiver's rows back into their slots, and these to their senders."""
        sent: list[Slots] = dispatched.order
        arrivals: list[Arrival] = dispatched.exchange
        local = dispatched.counts_E.numel() // self.ranks
        slots = sent[0].token_S.numel()
        back, start = [], 0
        for arrival in arrivals:
            taken = int(arrival.counts_E.sum())
            used = Arrival(arrival.taken_M[:taken], arrival.counts_E, arrival.dropped)
            back.append(put_back(rows_RL[start : start + taken], used, slots))
            start += taken
        returned = torch.stack(back).view(self.ranks, self.ranks, slots // self.ranks, -1).transpose(0, 1)
        parts = zip(returned.flatten(1, 2), weights_NK.chunk(self.ranks), sent, strict=True)
        return torch.cat([collect(rows, weights, slots_, local) for rows, weights, slots_ in parts])
