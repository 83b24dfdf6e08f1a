"""Ways to multiply the experts' matrices; all give the same numbers.

Rows come grouped by expert. There may be more rows than the counts add up to: those behind the last group belong to no
expert, may hold anything, are never read, come back as zeros, and get a gradient of zero. An expert without rows gets a
zero gradient, not none: otherwise the optimizer would treat it differently.

Shape letters: see `marin.model.outputs`; here E counts the experts whose matrices lie in this process.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from marin.model.activation import swiglu, swiglu_backward, swiglu_forward
from marin.model.autograd import apply


class _LoopExperts(torch.autograd.Function):
    """One expert after the other, all its steps while its rows are in the caches; buffers between steps are used again.

    Kept for the backward pass is what goes into the activation; what comes out is made again from it.
    """

    @staticmethod
    def forward(ctx: Any, rows_RL: Tensor, gate_up_EFL: Tensor, down_EFL: Tensor, counts: list[int]) -> Tensor:
        spans, used = _spans(counts)
        up_RF = rows_RL.new_empty(used, gate_up_EFL.shape[1])
        inner_MF = rows_RL.new_empty(max(counts, default=0), down_EFL.shape[1])
        y_RL = torch.empty_like(rows_RL, memory_format=torch.contiguous_format)
        y_RL[used:].zero_()
        for e, start, stop in spans:
            up, inner = up_RF[start:stop], inner_MF[: stop - start]
            torch.mm(rows_RL[start:stop], gate_up_EFL[e].t(), out=up)
            torch.mm(swiglu_forward(up, out=inner), down_EFL[e], out=y_RL[start:stop])
        ctx.save_for_backward(rows_RL, gate_up_EFL, down_EFL, up_RF)
        ctx.counts = counts
        return y_RL

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        rows_RL, gate_up_EFL, down_EFL, up_RF = ctx.saved_tensors
        grad_y = grads[0].contiguous()
        spans, used = _spans(ctx.counts)
        grad_gate_up = torch.empty_like(gate_up_EFL, memory_format=torch.contiguous_format)
        grad_down = torch.empty_like(down_EFL, memory_format=torch.contiguous_format)
        for e, count in enumerate(ctx.counts):
            if not count:
                grad_gate_up[e].zero_()
                grad_down[e].zero_()
        longest = max(ctx.counts, default=0)
        inner_MF = grad_y.new_empty(longest, down_EFL.shape[1])
        grad_inner_MF, grad_up_MF = torch.empty_like(inner_MF), grad_y.new_empty(longest, up_RF.shape[1])
        grad_rows = torch.empty_like(rows_RL, memory_format=torch.contiguous_format)
        grad_rows[used:].zero_()
        for e, start, stop in spans:
            row, grad, up = rows_RL[start:stop], grad_y[start:stop], up_RF[start:stop]
            inner, grad_inner, grad_up = (x[: stop - start] for x in (inner_MF, grad_inner_MF, grad_up_MF))
            torch.mm(grad, down_EFL[e].t(), out=grad_inner)
            swiglu_backward(grad_inner, up, out=grad_up, inner=inner)
            torch.mm(inner.t(), grad, out=grad_down[e])
            torch.mm(grad_up, gate_up_EFL[e], out=grad_rows[start:stop])
            torch.mm(grad_up.t(), row, out=grad_gate_up[e])
        return grad_rows, grad_gate_up, grad_down, None


def _spans(counts: list[int]) -> tuple[list[tuple[int, int, int]], int]:
    """(expert, first row, row behind its last) of every expert that has rows, and the number of all their rows."""
    spans, start = [], 0
    for e, count in enumerate(counts):
        if count:
            spans.append((e, start, start + count))
        start += count
    return spans, start


class _PaddedExperts(torch.autograd.Function):
    """One batched product over all experts, each filled up with rows of zeros to the longest."""

    @staticmethod
    def forward(
        ctx: Any, rows_RL: Tensor, gate_up_EFL: Tensor, down_EFL: Tensor, place_U: Tensor, longest: int
    ) -> Tensor:
        used = place_U.numel()
        rows_EML = _filled(rows_RL[:used], place_U, gate_up_EFL.shape[0], longest)
        up_EMF = torch.bmm(rows_EML, gate_up_EFL.transpose(1, 2))
        inner_EMF = swiglu_forward(up_EMF)
        y_EML = torch.bmm(inner_EMF, down_EFL)
        ctx.save_for_backward(rows_EML, gate_up_EFL, down_EFL, up_EMF, inner_EMF, place_U)
        ctx.rows = rows_RL.shape[0]
        return _emptied(y_EML, place_U, rows_RL.shape[0])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        rows_EML, gate_up_EFL, down_EFL, up_EMF, inner_EMF, place_U = ctx.saved_tensors
        grad_y = _filled(grads[0][: place_U.numel()], place_U, rows_EML.shape[0], rows_EML.shape[1])
        grad_down = torch.bmm(inner_EMF.transpose(1, 2), grad_y)
        grad_up = swiglu_backward(torch.bmm(grad_y, down_EFL.transpose(1, 2)), up_EMF)
        grad_gate_up = torch.bmm(grad_up.transpose(1, 2), rows_EML)
        grad_rows = _emptied(torch.bmm(grad_up, gate_up_EFL), place_U, ctx.rows)
        return grad_rows, grad_gate_up, grad_down, None, None


def _filled(rows_UL: Tensor, place_U: Tensor, experts: int, longest: int) -> Tensor:
    """[U, L] -> [E, M, L], zeros in between."""
    padded = rows_UL.new_zeros(experts * longest, rows_UL.shape[1])
    return padded.index_copy_(0, place_U, rows_UL).view(experts, longest, -1)


def _emptied(rows_EML: Tensor, place_U: Tensor, rows: int) -> Tensor:
    """[E, M, L] -> [R, L], zeros behind the last group."""
    picked = rows_EML.view(-1, rows_EML.shape[2]).index_select(0, place_U)
    return picked if rows == place_U.numel() else F.pad(picked, (0, 0, 0, rows - place_U.numel()))


class _Behind(torch.autograd.Function):
    """Passes rows on: forward, and back, with zeros behind the last group where asked; gradients become contiguous."""

    @staticmethod
    def forward(ctx: Any, rows_RL: Tensor, behind_R1: Tensor | None, clear: bool) -> Tensor:
        ctx.behind = behind_R1
        if behind_R1 is None or not clear:
            return rows_RL.view_as(rows_RL)
        return rows_RL.masked_fill(behind_R1, 0)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        grad = grads[0].contiguous()
        return grad if ctx.behind is None else grad.masked_fill(ctx.behind, 0), None, None


def loop_experts(
    rows_RL: Tensor, gate_up_EFL: Tensor, down_EFL: Tensor, counts_E: Tensor, exact: bool = True
) -> Tensor:
    """SwiGLU of every expert on its rows, one expert after the other. [R, L] -> [R, L]"""
    y: Tensor = apply(_LoopExperts, rows_RL, gate_up_EFL, down_EFL, counts_E.tolist())
    return y


def padded_experts(
    rows_RL: Tensor, gate_up_EFL: Tensor, down_EFL: Tensor, counts_E: Tensor, exact: bool = True
) -> Tensor:
    """SwiGLU of every expert on its rows by batched products over equally many rows. [R, L] -> [R, L]"""
    counts = counts_E.tolist()
    longest = max(1, *counts)
    expert_U = torch.repeat_interleave(torch.arange(len(counts), device=counts_E.device), counts_E)
    first_E = counts_E.cumsum(0) - counts_E
    place_U = torch.arange(sum(counts), device=counts_E.device) + (longest * expert_U - first_E[expert_U])
    y: Tensor = apply(_PaddedExperts, rows_RL, gate_up_EFL, down_EFL, place_U, longest)
    return y


def grouped_experts(
    rows_RL: Tensor, gate_up_EFL: Tensor, down_EFL: Tensor, counts_E: Tensor, exact: bool = True
) -> Tensor:
    """SwiGLU of every expert on its rows by grouped matrix products. [R, L] -> [R, L]

    The products leave rows behind the last group uninitialised, in both directions. `exact` says that there are none,
    which on a device only its counts would tell.
    """
    ends = counts_E.cumsum(0).to(torch.int32)
    behind = None if exact else (torch.arange(rows_RL.shape[0], device=rows_RL.device) >= ends[-1]).unsqueeze(1)
    rows_RL = apply(_Behind, rows_RL.contiguous(), behind, False)
    inner_RF = swiglu(F.grouped_mm(rows_RL, gate_up_EFL.transpose(1, 2), offs=ends))
    y: Tensor = apply(_Behind, F.grouped_mm(inner_RF, down_EFL, offs=ends), behind, True)
    return y
