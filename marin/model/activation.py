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


def swiglu_forward(gate_up: Tensor, out: Tensor | None = None) -> Tensor:
    """silu(gate) ⊙ up for gate_up = [gate | up] along the last dimension, into `out` where it is given."""
    gate, up = gate_up.chunk(2, dim=-1)
    silu: Tensor = F.silu(gate) if out is None else torch.ops.aten.silu.out(gate, out=out)
    return silu.mul_(up)


def swiglu_backward(grad: Tensor, gate_up: Tensor, out: Tensor | None = None, inner: Tensor | None = None) -> Tensor:
    """Gradient of `swiglu_forward` with respect to gate_up, into `out` where it is given.

    `inner`, where it is given, is filled with what the forward pass returned.
    """
    gate, up = gate_up.chunk(2, dim=-1)
    grad_gate_up = torch.empty_like(gate_up) if out is None else out
    grad_gate, grad_up = grad_gate_up.chunk(2, dim=-1)
    scratch = F.silu(gate)
    torch.mul(grad, scratch, out=grad_up)
    if inner is not None:
        torch.mul(scratch, up, out=inner)
    torch.mul(grad, up, out=scratch)
    torch.ops.aten.silu_backward.grad_input(scratch, gate, grad_input=grad_gate)
    return grad_gate_up


def swiglu(gate_up: Tensor) -> Tensor:
    """silu(gate) ⊙ up for gate_up = [gate | up] along the last dimension. [.., 2F] -> [.., F]"""
    y: Tensor = apply(_SwiGLU, gate_up)
    return y
