"""The rule of a capacity, written slowly, and what ranks do with it."""

from __future__ import annotations

import torch
from torch import Tensor

from marin.model.config import CapacityConfig


def kept_by_rule(experts_NK: Tensor, experts: int, ranks: int, capacity: CapacityConfig) -> tuple[Tensor, int]:
    """Which assignments are kept when `ranks` ranks read equal parts of the tokens, and how many are dropped."""
    n, k = experts_NK.shape
    part, local = n // ranks, experts // ranks
    send = min(part * k, max(1, int(capacity.factor_sender * part * k / ranks)))
    take = max(1, int(capacity.factor_receiver * part * k))
    kept = torch.zeros(n, k, dtype=torch.bool)
    for receiver in range(ranks):
        queues = []
        for sender in range(ranks):
            tokens = range(sender * part, (sender + 1) * part)
            mine = [(t, c) for c in range(k) for t in tokens if int(experts_NK[t, c]) // local == receiver]
            queues.append(mine[:send])
        in_turn = [queue[place] for place in range(send) for queue in queues if place < len(queue)]
        for token, choice in in_turn[:take]:
            kept[token, choice] = True
    return kept, int((~kept).sum())


def reference_sum(x_NL: Tensor, experts_NK: Tensor, weights_NK: Tensor, scale_EL: Tensor, kept_NK: Tensor) -> Tensor:
    """Weighted sum over the kept assignments of experts that scale their rows."""
    rows = []
    for n in range(len(x_NL)):
        row = torch.zeros_like(x_NL[n])
        for j in range(experts_NK.shape[1]):
            if kept_NK[n, j]:
                row = row + weights_NK[n, j] * scale_EL[experts_NK[n, j]] * x_NL[n]
        rows.append(row)
    return torch.stack(rows)


def case(*, tokens: int, experts: int, k: int, skew: float, width: int = 3) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Tokens, their experts (the first ones liked best by `skew`), weights, and what each expert multiplies with."""
    generator = torch.Generator().manual_seed(7)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    liked = random(tokens, experts) - skew * torch.arange(experts) / experts
    return random(tokens, width), liked.topk(k).indices, random(tokens, k).sigmoid(), random(experts, width)
