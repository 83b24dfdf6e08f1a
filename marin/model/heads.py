"""What is done to single heads: rotation by position before attention, exclusion and gate after it.

Shape letters: see `marin.model.outputs`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from marin.model.autograd import apply
from marin.model.normalisation import at_least_fp32

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


def finished(y_BTHC: Tensor, v_BTGC: Tensor, gate_BTH: Tensor | None, *, exclusive: bool) -> Tensor:
    """The heads' outputs, without their part along the own value when `exclusive`, scaled by a gate if there is one."""
    if exclusive:
        return exclusive_gated(y_BTHC, v_BTGC, y_BTHC.new_ones(y_BTHC.shape[:3]) if gate_BTH is None else gate_BTH)
    return y_BTHC if gate_BTH is None else y_BTHC * gate_BTH.unsqueeze(-1)
