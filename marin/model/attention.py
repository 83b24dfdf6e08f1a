"""The attention of one block: grouped queries, local or global, exclusive, gated by head.

Shape letters: see `marin.model.outputs`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from marin.model.attention_backends import attend
from marin.model.autograd import apply
from marin.model.config import ComputeConfig, ModelConfig
from marin.model.convolution import ShortConvolution
from marin.model.normalisation import at_least_fp32, rms_norm
from marin.model.packing import Packing

EXCLUSIVE_EPS = 1e-6


class _Rotate(torch.autograd.Function):
    """Multiplies adjacent pairs of channels, read as complex numbers, by unit factors."""

    @staticmethod
    def forward(ctx: Any, x_BTHC: Tensor, rotation_BTP: Tensor) -> Tensor:
        ctx.rotation = rotation_BTP
        return _rotated(x_BTHC, rotation_BTP)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return _rotated(grads[0], ctx.rotation.conj()), None


def _rotated(x_BTHC: Tensor, rotation_BTP: Tensor) -> Tensor:
    wide = at_least_fp32(x_BTHC).contiguous()
    pairs = torch.view_as_complex(wide.view(*wide.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * rotation_BTP.unsqueeze(2)).view(wide.shape).to(x_BTHC.dtype)


def rotate(x_BTHC: Tensor, rotation_BTP: Tensor) -> Tensor:
    """Rotary position encoding of the pairs (2j, 2j+1) of every head."""
    y: Tensor = apply(_Rotate, x_BTHC, rotation_BTP)
    return y


class _ExclusiveGated(torch.autograd.Function):
    """y ← gate · (y − (y·v / (v·v + eps)) v), per head; v is shared by the query heads of its group."""

    @staticmethod
    def forward(ctx: Any, y_BTHC: Tensor, v_BTGC: Tensor, gate_BTH: Tensor) -> Tensor:
        b, t, h, c = y_BTHC.shape
        g = v_BTGC.shape[2]
        y = y_BTHC.reshape(b, t, g, h // g, c)
        v = v_BTGC.unsqueeze(3)
        inverse = torch.linalg.vecdot(v, v).add_(EXCLUSIVE_EPS).reciprocal_().unsqueeze(-1)
        along = (y * v).sum(-1, keepdim=True)
        rest = torch.addcmul(y, along * inverse, v, value=-1)
        ctx.save_for_backward(y, v, gate_BTH, inverse, along, rest)
        return rest.view(b, t, h, c) * gate_BTH.unsqueeze(-1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y, v, gate, inverse, along, rest = ctx.saved_tensors
        grad_out = grads[0].reshape(y.shape)
        grad_gate = torch.linalg.vecdot(grad_out, rest).view(gate.shape)
        grad = grad_out * gate.view(*y.shape[:-1], 1)
        grad_along = (grad * v).sum(-1, keepdim=True)
        grad_y = torch.addcmul(grad, grad_along * inverse, v, value=-1)
        # rest = y − s·v with s = along·inverse: ds/dv = inverse·y − 2·along·inverse²·v.
        scale = along * inverse
        grad_v = torch.addcmul(grad * scale, grad_along * inverse, y)
        grad_v = grad_v.sum(3).neg_()
        grad_v.addcmul_((grad_along * along).sum(3) * inverse.squeeze(3).square().mul(2), v.squeeze(3))
        return grad_y.view(grads[0].shape), grad_v, grad_gate


def exclusive_gated(y_BTHC: Tensor, v_BTGC: Tensor, gate_BTH: Tensor) -> Tensor:
    """Take from each head's output its part along the token's own value, then scale it by the head's gate."""
    y: Tensor = apply(_ExclusiveGated, y_BTHC, v_BTGC, gate_BTH)
    return y


class Attention(nn.Module):
    """Attention of layer `layer` on the normalised stream. [B, T, D] -> [B, T, D]"""

    def __init__(self, config: ModelConfig, layer: int, compute: ComputeConfig) -> None:
        super().__init__()
        self.compute = compute
        self.head_dim = config.head_dim
        self.eps = config.norm_eps
        self.query_scale = config.query_scale
        self.window = None if config.is_global(layer) else config.window
        self.rotary = None if config.is_global(layer) else (config.head_dim, config.rotary_dim, config.rope_theta)
        self.used_kv_width = config.kv_heads_of(layer) * config.head_dim
        stored = config.kv_heads * config.head_dim
        inner = config.heads * config.head_dim
        self.query = nn.Parameter(torch.empty(inner, config.width))
        self.key = nn.Parameter(torch.empty(stored, config.width))
        self.value = nn.Parameter(torch.empty(stored, config.width))
        self.output = nn.Parameter(torch.empty(config.width, inner))
        self.head_gate = nn.Parameter(torch.empty(config.heads, config.width))
        self.key_convolution = ShortConvolution(stored, config.conv_taps)

    def forward(self, u_BTD: Tensor, packing: Packing) -> Tensor:
        """Attend inside each packed document."""
        used = self.used_kv_width
        b, t, _ = u_BTD.shape
        q = F.linear(u_BTD, self.query).view(b, t, -1, self.head_dim)
        k = self.key_convolution(F.linear(u_BTD, self.key[:used]), packing, used).view(b, t, -1, self.head_dim)
        v = F.linear(u_BTD, self.value[:used]).view(b, t, -1, self.head_dim)
        q = rms_norm(q, None, eps=self.eps, scale=self.query_scale)
        k = rms_norm(k, None, eps=self.eps)
        if self.rotary is not None:
            rotation = packing.rotation_BTP(*self.rotary, u_BTD.dtype)
            q, k = rotate(q, rotation), rotate(k, rotation)
        y = attend(q, k, v, packing, self.window, self.compute)
        gate_BTH = 2 * torch.sigmoid(F.linear(u_BTD, self.head_gate))
        return F.linear(exclusive_gated(y, v, gate_BTH).flatten(2), self.output)
