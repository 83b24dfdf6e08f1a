"""Router biases from counts: quantile balancing by histogram, and the sign rule. Pure functions of tensors.

Quantile balancing: an expert's bias for the next step is minus the margin that a share K/E of all tokens exceeds, so
that with this bias each expert would have been chosen by its even share. The margin of a token is its logit minus the
threshold, the (K+1)-th largest biased logit. Shape letters: see `marin.model.outputs`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def add_to_histogram(counts_EH: Tensor, margins_NE: Tensor, low: Tensor, high: Tensor) -> None:
    """Count every margin in its expert's row of equal bins over [low, high]; outliers go to the edge bins."""
    experts, bins = counts_EH.shape
    scale = bins / (high - low)
    bin_NE = ((margins_NE - low) * scale).to(torch.int64).clamp_(0, bins - 1)
    bin_NE += torch.arange(0, experts * bins, bins, device=bin_NE.device)
    flat = bin_NE.flatten()
    counts_EH.view(-1).scatter_add_(0, flat, torch.ones_like(flat))


def exceeded_by(counts_EH: Tensor, target: float, low: Tensor, high: Tensor) -> Tensor:
    """The value of each row that `target` of its counts exceed, interpolated inside the crossing bin. float64 [E]

    For values inside [low, high] it is within one bin's width, (high − low) / bins, of the exact quantile.
    """
    experts, bins = counts_EH.shape
    # Blocks of bins first: a running sum over all of them costs several times as much.
    size = next(size for size in range(math.isqrt(bins), 0, -1) if bins % size == 0)
    blocks_EBS = counts_EH.view(experts, bins // size, size)
    target_E1 = torch.full((experts, 1), target, dtype=torch.float64, device=counts_EH.device)
    block_E1, before_E1 = _crossing(blocks_EBS.sum(2).flip(1), target_E1)
    inside_E1S = (bins // size - 1 - block_E1).unsqueeze(2).expand(-1, -1, size)
    block_ES = blocks_EBS.gather(1, inside_E1S).squeeze(1).flip(1)
    bin_E1, before_bin_E1 = _crossing(block_ES, target_E1 - before_E1)
    inside_E1 = block_ES.gather(1, bin_E1)
    # float64 by hand: torch would turn integer counts into fp32, which loses them past 2^24.
    missing_E1 = target_E1 - (before_E1 + before_bin_E1).to(torch.float64)
    part_E1 = (missing_E1 / inside_E1.clamp(min=1)).clamp_(0, 1)
    width = (high - low).to(torch.float64) / bins
    return (high.to(torch.float64) - width * (block_E1 * size + bin_E1 + part_E1)).squeeze(1)


def _crossing(counts: Tensor, target_E1: Tensor) -> tuple[Tensor, Tensor]:
    """(place, sum before it) of where the running sum of each row of counts reaches its target, the last at most."""
    running = counts.cumsum(1)
    place_E1 = (running.to(torch.float64) < target_E1).sum(1, keepdim=True).clamp_(max=counts.shape[1] - 1)
    return place_E1, (running - counts).gather(1, place_E1)


def quantile_bias(counts_EH: Tensor, tokens: int, experts_per_token: int, low: Tensor, high: Tensor) -> Tensor:
    """The next step's bias: minus the exceeded margin, mean-centred over experts. float64 [E]"""
    experts = counts_EH.shape[0]
    bias = -exceeded_by(counts_EH, tokens * experts_per_token / experts, low, high)
    return bias - bias.mean()


def sign_bias(bias_E: Tensor, load_E: Tensor, step: float) -> Tensor:
    """The bias moved by `step` towards the mean load: up where an expert got less than the mean, down where more."""
    load = load_E.to(torch.float64)
    return bias_E + step * torch.sign(load.mean() - load).to(bias_E.dtype)


def widened(low: Tensor, high: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """The range widened by `share` of its width on each side, and never empty."""
    width = (high - low).clamp(min=1e-6)
    return low - share * width, low + width + share * width
