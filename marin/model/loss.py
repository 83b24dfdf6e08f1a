"""Output head and cross-entropy in chunks: the logits of all tokens are never in memory at once.

The gradient is made in the forward pass, chunk by chunk, while the logits are there; the backward pass only scales it.
Shape letters: see `marin.model.outputs`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from marin.model.autograd import apply
from marin.model.config import ComputeConfig, ModelConfig
from marin.model.normalisation import at_least_fp32
from marin.model.outputs import LossSums

CPU_CHUNK = 1 << 21
"""Logits of one chunk on the CPU: few enough for its caches, and tokens enough that the head is read few times."""

ACCELERATOR_CHUNK = 1 << 28
"""Logits of one chunk elsewhere, 1 GiB in fp32: every chunk reads the whole head and adds to its whole gradient, so it
must hold thousands of tokens.
"""


def chunk_for(wanted: int | None, device: str) -> int:
    """Logits of one chunk on a device of this type."""
    if wanted is not None:
        return wanted
    return CPU_CHUNK if device == "cpu" else ACCELERATOR_CHUNK


class _ChunkedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, mask_N: Tensor, z_loss: float, rows: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        wide = torch.float64 if x_ND.dtype == torch.float64 else torch.float32
        nll_sum = torch.zeros((), dtype=wide, device=x_ND.device)
        z_sum = torch.zeros_like(nll_sum)
        grad_x = torch.zeros_like(x_ND) if ctx.needs_input_grad[0] else None
        grad_weight = torch.zeros_like(weight_VD, dtype=wide) if ctx.needs_input_grad[1] else None
        for start in range(0, len(x_ND), rows):
            x, target, mask = (full[start : start + rows] for full in (x_ND, targets_N, mask_N))
            real = mask.to(wide)
            logits = F.linear(x, weight_VD).to(wide)
            index = torch.where(mask, target, 0).unsqueeze(1)
            chosen = logits.gather(1, index).squeeze(1)
            # One buffer holds in turn the logits, their exponentials and their gradient.
            largest = logits.amax(1)
            powers = logits.sub_(largest.unsqueeze(1)).exp_()
            total = powers.sum(1)
            partition = total.log().add_(largest)
            nll_sum += ((partition - chosen) * real).sum()
            z_sum += (partition.square() * real).sum()
            if grad_x is None and grad_weight is None:
                continue
            # d(nll + z · lse²)/d logits = p (1 + 2 z lse) − onehot, for real tokens.
            grad = powers.mul_((real * (1 + 2 * z_loss * partition) / total).unsqueeze(1))
            grad.scatter_add_(1, index, -real.unsqueeze(1))
            grad = grad.to(x.dtype)
            if grad_weight is not None:
                if grad_weight.dtype == grad.dtype:
                    grad_weight.addmm_(grad.t(), x)
                else:
                    grad_weight += grad.t() @ x
            if grad_x is not None:
                torch.mm(grad, weight_VD, out=grad_x[start : start + rows])
        ctx.save_for_backward(grad_x, None if grad_weight is None else grad_weight.to(weight_VD.dtype))
        ctx.mark_non_differentiable(nll_sum, z_sum)
        return nll_sum + z_loss * z_sum, nll_sum, z_sum

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None, None]:
        grad_x, grad_weight = ctx.saved_tensors
        scale = grads[0]
        return (
            None if grad_x is None else grad_x * scale.to(grad_x.dtype),
            None if grad_weight is None else grad_weight * scale.to(grad_weight.dtype),
            None,
            None,
            None,
            None,
        )


def chunked_loss(
    x_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, mask_N: Tensor, *, z_loss: float, chunk: int
) -> LossSums:
    """Sums of cross-entropy and squared log-partition of logits x·Wᵀ over the tokens that `mask_N` marks.

    At most `chunk` logits (at least one token's) exist at once. Targets of unmarked tokens are never read.
    """
    rows = max(1, chunk // weight_VD.shape[0])
    if not torch.is_grad_enabled():
        # A custom function is told that leaves need gradients even here, and would make them for nothing.
        x_ND, weight_VD = x_ND.detach(), weight_VD.detach()
    total, nll, z = apply(_ChunkedLoss, x_ND, weight_VD, targets_N, mask_N, z_loss, rows)
    return LossSums(total, nll, z, mask_N.sum())


class Head(nn.Module):
    """Logits over the vocabulary, or the loss sums of given targets."""

    def __init__(self, config: ModelConfig, compute: ComputeConfig) -> None:
        super().__init__()
        # A tied head has no matrix of its own, so nothing can make two of them: no sharding, no checkpoint.
        self.weight = None if config.tied_head else nn.Parameter(torch.empty(config.vocab_size, config.width))
        self.z_loss = config.z_loss
        self.chunk = compute.loss_chunk

    def forward(
        self, x_BTD: Tensor, targets_BT: Tensor | None, mask_BT: Tensor | None, tied_VD: Tensor | None = None
    ) -> Tensor | LossSums:
        """Logits [B, T, V] in at least fp32 without targets, otherwise LossSums; by the matrix `tied_VD` of a tied
        head.
        """
        weight_VD = self.weight if tied_VD is None else tied_VD
        assert weight_VD is not None
        if targets_BT is None:
            return at_least_fp32(F.linear(x_BTD, weight_VD))
        mask = torch.ones_like(targets_BT, dtype=torch.bool) if mask_BT is None else mask_BT
        return chunked_loss(
            x_BTD.flatten(0, 1),
            weight_VD,
            targets_BT.flatten(),
            mask.flatten(),
            z_loss=self.z_loss,
            chunk=chunk_for(self.chunk, x_BTD.device.type),
        )
