"""silu(gate) ⊙ up, kept as one saved input."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from marin.model.autograd import apply


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate_up: Tensor) -> Tensor:
        ctx.save_for_backward(gate_up)
        return swiglu_forward(gate_up)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (gate_up,) = ctx.saved_tensors
        return swiglu_backward(grads[0], gate_up)


def swiglu_forward(gate_up: Tensor) -> Tensor:
    """silu(gate) ⊙ up for gate_up = [gate | up] along the last dimension."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate).mul_(up)


def swiglu_backward(grad: Tensor, gate_up: Tensor) -> Tensor:
    """Gradient of `swiglu_forward` with respect to gate_up."""
    gate, up = gate_up.chunk(2, dim=-1)
    grad_gate_up = torch.empty_like(gate_up)
    grad_gate, grad_up = grad_gate_up.chunk(2, dim=-1)
    scratch = F.silu(gate)
    torch.mul(grad, scratch, out=grad_up)
    torch.mul(grad, up, out=scratch)
    torch.ops.aten.silu_backward.grad_input(scratch, gate, grad_input=grad_gate)
    return grad_gate_up


def swiglu(gate_up: Tensor) -> Tensor:
    """silu(gate) ⊙ up for gate_up = [gate | up] along the last dimension. [.., 2F] -> [.., F]"""
    y: Tensor = apply(_SwiGLU, gate_up)
    return y
