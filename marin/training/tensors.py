"""From the loader's arrays to what the model takes."""

from __future__ import annotations

import torch
from torch import Tensor

from marin.tokens.mixture.loader import Batch


def on_device(batch: Batch, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(tokens, segments, positions, targets, loss mask) of a batch, each [B, T], in the order of the model's
    arguments.
    """
    arrays = (batch.tokens, batch.segments, batch.positions, batch.targets, batch.loss_mask)
    tokens, segments, positions, targets, mask = (
        torch.from_numpy(array).to(device, non_blocking=True) for array in arrays
    )
    return tokens, segments, positions, targets, mask
