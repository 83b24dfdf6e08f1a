"""What a forward pass and a step's routing return.

Shape letters of this room: B sequences, T positions, N = B·T tokens, D width, H query heads, G key-value heads, C head
channels, E experts, K experts of a token, R = N·K rows sent to experts, L latent width, F expert width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

LOAD_PERCENTILES = (50, 90, 99)
"""Of the loads of all experts of all layers, each over its layer's mean."""


class LossSums(NamedTuple):
    """Sums over the real tokens of the batch; 0-d tensors, never divided, so that any split of a batch adds up.

    Only `total_sum` carries a gradient: it is nll_sum + z_loss · z_sum with the model's own weight, and in training
    what the routers add for the real tokens (`marin.model.router_losses`). The loss of a step is the sum of `total_sum`
    over all micro-batches and ranks divided by the sum of `token_count` over them.
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

    def begin_sum(self, tensor: Tensor) -> Callable[[], None]:
        """Begin to replace `tensor` by the sum over all ranks; it is there when the function that is returned has run.

        Until then nobody may touch it.
        """


class LocalReducer:
    """One process holds the whole batch: nothing to combine."""

    def sum_(self, tensor: Tensor) -> None:
        """Leave `tensor` as it is."""

    def max_(self, tensor: Tensor) -> None:
        """Leave `tensor` as it is."""

    def begin_sum(self, tensor: Tensor) -> Callable[[], None]:
        """Nothing to wait for."""
        return _nothing


def _nothing() -> None:
    """What is done where nothing is to be done."""


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
    """Mean squared log-partition of the router's logits, without a weight."""
    balance_loss_L: Tensor
    """E · Σ_e load share · mean probability, without a weight: 1 when balanced."""

    def summary(self) -> dict[str, float]:
        """Figures for the metrics log: worst and mean over layers, and percentiles over all layers' experts."""
        load = self.load_LE.to(torch.float64)
        share = load / load.sum(dim=1, keepdim=True).clamp(min=1)
        over_mean = share * load.shape[1]
        ratio_L = over_mean.amax(dim=1)
        entropy_L = -(share * share.clamp(min=1e-30).log()).sum(dim=1)
        shares = torch.tensor([percent / 100 for percent in LOAD_PERCENTILES], dtype=torch.float64)
        percentiles = torch.quantile(over_mean.flatten(), shares).tolist()
        return {
            "moe/load_max_over_mean_worst": float(ratio_L.max()),
            "moe/load_max_over_mean": float(ratio_L.mean()),
            **{f"moe/load_over_mean_p{p}": v for p, v in zip(LOAD_PERCENTILES, percentiles, strict=True)},
            "moe/dead_experts": float((self.load_LE == 0).sum()),
            "moe/load_entropy": float(entropy_L.mean()),
            "moe/dropped_fraction": self.dropped / max(1, int(self.load_LE.sum())),
            "moe/router_z_loss": float(self.z_loss_L.mean()),
            "moe/balance_loss": float(self.balance_loss_L.mean()),
        }
