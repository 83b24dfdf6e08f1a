"""What a forward pass and a step's routing return.

Shape letters of this room: B sequences, T positions, N = B·T tokens, D width, H query heads, G key-value heads, C head
channels, E experts, K experts of a token, R = N·K rows sent to experts, L latent width, F expert width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class LossSums(NamedTuple):
    """Sums over the real tokens of the batch; 0-d tensors, never divided, so that any split of a batch adds up.

    Only `total_sum` carries a gradient: it is nll_sum + z_loss · z_sum with the model's own weight. The loss of a step
    is the sum of `total_sum` over all micro-batches and ranks divided by the sum of `token_count` over them.
    """

    total_sum: Tensor
    nll_sum: Tensor
    z_sum: Tensor
    """Sum of logsumexp(logits)²."""
    token_count: Tensor
    """int64."""


class Reducer(Protocol):
    """Combines a tensor over everyone who holds a part of the global batch, in place."""

    def sum_(self, tensor: Tensor) -> None:
        """Replace `tensor` by the sum over all ranks."""

    def max_(self, tensor: Tensor) -> None:
        """Replace `tensor` by the maximum over all ranks."""


class LocalReducer:
    """One process holds the whole batch: nothing to combine."""

    def sum_(self, tensor: Tensor) -> None:
        """Leave `tensor` as it is."""

    def max_(self, tensor: Tensor) -> None:
        """Leave `tensor` as it is."""


@dataclass(frozen=True)
class RouterStatistics:
    """Routing of one optimizer step over all micro-batches and ranks; CPU tensors, one row a layer."""

    load_LE: Tensor
    """int64: assignments of each expert, dropped ones included."""
    tokens: int
    """Tokens that each layer routed."""
    dropped: int
    """Assignments that no expert computed (0 unless a capacity is set)."""
    z_loss_L: Tensor
    """Mean squared log-partition of the router's logits (logged, not trained on)."""
    balance_loss_L: Tensor
    """E · Σ_e load share · mean probability: 1 when balanced (logged, not trained on)."""

    def summary(self) -> dict[str, float]:
        """Figures for the metrics log: worst and mean over layers."""
        load = self.load_LE.to(torch.float64)
        share = load / load.sum(dim=1, keepdim=True).clamp(min=1)
        ratio_L = share.amax(dim=1) * load.shape[1]
        entropy_L = -(share * share.clamp(min=1e-30).log()).sum(dim=1)
        return {
            "moe/load_max_over_mean_worst": float(ratio_L.max()),
            "moe/load_max_over_mean": float(ratio_L.mean()),
            "moe/dead_experts": float((self.load_LE == 0).sum()),
            "moe/load_entropy": float(entropy_L.mean()),
            "moe/dropped_fraction": self.dropped / max(1, int(self.load_LE.sum())),
            "moe/router_z_loss": float(self.z_loss_L.mean()),
            "moe/balance_loss": float(self.balance_loss_L.mean()),
        }
