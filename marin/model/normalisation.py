"""RMS normalisation and the gate that follows it.

Statistics are taken in at least fp32; a float64 model stays float64. Shape letters: see `marin.model.outputs`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from marin.model.autograd import apply
from marin.model.config import ModelConfig


def at_least_fp32(x: Tensor) -> Tensor:
    """`x` in fp32, or unchanged when it is wider."""
    return x if x.dtype == torch.float64 else x.float()


class _RmsNorm(torch.autograd.Function):
    """One saved input and one saved number a row, instead of a graph of elementwise operations."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor | None, scale: float, eps: float) -> Tensor:
        wide = at_least_fp32(x)
        norm = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        inverse = norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        ctx.save_for_backward(x, gain, inverse)
        ctx.scale = scale
        y = wide * (inverse if scale == 1.0 else inverse * scale)
        if gain is not None:
            y.mul_(gain)
        result: Tensor = y.to(x.dtype)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        x, gain, inverse = ctx.saved_tensors
        grad, wide = at_least_fp32(grads[0]), at_least_fp32(x)
        product = grad * wide
        if gain is None:
            grad_gain, projection = None, product.sum(-1, keepdim=True)
            grad_normal = grad
        else:
            # Both sums over rows and over channels are products with a vector.
            grad_gain = (inverse.flatten() @ product.flatten(0, -2)).mul_(ctx.scale).to(gain.dtype)
            projection = (product @ gain.to(product.dtype)).unsqueeze(-1)
            grad_normal = grad * gain
        projection.mul_(inverse.square()).div_(x.shape[-1])
        grad_x = torch.addcmul(grad_normal, wide, projection, value=-1).mul_(
            inverse if ctx.scale == 1.0 else inverse * ctx.scale
        )
        return grad_x.to(x.dtype), grad_gain, None, None


def rms_norm(x: Tensor, gain: Tensor | None, *, eps: float, scale: float = 1.0) -> Tensor:
    """`scale` · x / sqrt(mean(x²) + eps) · gain over the last dimension, in the dtype of `x`."""
    y: Tensor = apply(_RmsNorm, x, gain, scale, eps)
    return y


class _Gate(torch.autograd.Function):
    """x ⊙ sigmoid(a)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, a: Tensor) -> Tensor:
        gate = torch.sigmoid(a)
        ctx.save_for_backward(x, gate)
        return x * gate

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        x, gate = ctx.saved_tensors
        grad_x = grads[0] * gate
        grad_a = (1 - gate).mul_(x).mul_(grad_x)
        return grad_x, grad_a


class Norm(nn.Module):
    """RMSNorm followed by its low-rank gate: y = RMSNorm(x), y ⊙ sigmoid(W_up silu(W_down y)). [.., D] -> [.., D]

    Without a rank there is no gate.
    """

    def __init__(self, width: int, rank: int | None, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.gain = nn.Parameter(torch.empty(width))
        self.gated = rank is not None
        if rank is not None:
            self.gate_down = nn.Parameter(torch.empty(rank, width))
            self.gate_up = nn.Parameter(torch.empty(width, rank))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise and gate the last dimension."""
        y = rms_norm(x, self.gain, eps=self.eps)
        if not self.gated:
            return y
        gated: Tensor = apply(_Gate, y, F.linear(F.silu(F.linear(y, self.gate_down)), self.gate_up))
        return gated


def norm_of(config: ModelConfig) -> Norm:
    """A norm over the model's width."""
    return Norm(config.width, config.gate_rank if config.features.gated_norm else None, config.norm_eps)
