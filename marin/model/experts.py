"""The routed experts' matrices and the code that multiplies them.

Rows come grouped by expert. Shape letters: see `marin.model.outputs`; here E counts the experts whose matrices lie in
this process.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from marin.model.activation import swiglu, swiglu_backward, swiglu_forward
from marin.model.autograd import apply
from marin.model.config import ComputeConfig, ExpertBackend, ModelConfig

logger = logging.getLogger(__name__)

GROUPED_ALIGNMENT_BYTES = 16
"""Rows of grouped matrix products must be multiples of this."""


@cache
def choose_experts(wanted: ExpertBackend, device: str, dtype: torch.dtype, latent: int, width: int) -> ExpertBackend:
    """The back end for these rows; logs its reason once."""
    if wanted is ExpertBackend.LOOP:
        logger.info("experts: loop (as configured)")
        return wanted
    obstacle = None
    size = torch.empty((), dtype=dtype).element_size()
    if any(n * size % GROUPED_ALIGNMENT_BYTES for n in (latent, width)):
        obstacle = (
            f"rows of {latent} and {width} values of {size} bytes are not multiples of {GROUPED_ALIGNMENT_BYTES} bytes"
        )
    elif device == "cuda" and dtype != torch.bfloat16:
        obstacle = f"the grouped product on cuda takes bf16, not {dtype}"
    elif dtype == torch.float64:
        obstacle = "the grouped product has no float64"
    if wanted is ExpertBackend.GROUPED and obstacle:
        raise ValueError(f"compute.experts is grouped, but {obstacle}; take auto or loop")
    if wanted is ExpertBackend.AUTO and obstacle is None and device != "cuda":
        obstacle = f"on {device} the loop is as fast and needs no alignment"
    chosen = ExpertBackend.LOOP if obstacle else ExpertBackend.GROUPED
    logger.info("experts: %s (%s)", chosen.value, obstacle or f"{device}, {dtype}, aligned rows")
    return chosen


class _LoopExperts(torch.autograd.Function):
    """One product after the other into one buffer; elementwise work once for all experts.

    An expert without rows gets a zero gradient, not none: otherwise the optimizer would treat it differently.
    """

    @staticmethod
    def forward(ctx: Any, rows_RL: Tensor, gate_up_EFL: Tensor, down_EFL: Tensor, counts: list[int]) -> Tensor:
        up_RF = rows_RL.new_empty(rows_RL.shape[0], gate_up_EFL.shape[1])
        spans = _spans(counts)
        for e, start, stop in spans:
            torch.mm(rows_RL[start:stop], gate_up_EFL[e].t(), out=up_RF[start:stop])
        inner_RF = swiglu_forward(up_RF)
        y_RL = torch.empty_like(rows_RL, memory_format=torch.contiguous_format)
        for e, start, stop in spans:
            torch.mm(inner_RF[start:stop], down_EFL[e], out=y_RL[start:stop])
        ctx.save_for_backward(rows_RL, gate_up_EFL, down_EFL, up_RF, inner_RF)
        ctx.counts = counts
        return y_RL

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        rows_RL, gate_up_EFL, down_EFL, up_RF, inner_RF = ctx.saved_tensors
        grad_y = grads[0].contiguous()
        spans = _spans(ctx.counts)
        grad_gate_up = torch.empty_like(gate_up_EFL, memory_format=torch.contiguous_format)
        grad_down = torch.empty_like(down_EFL, memory_format=torch.contiguous_format)
        for e, count in enumerate(ctx.counts):
            if not count:
                grad_gate_up[e].zero_()
                grad_down[e].zero_()
        grad_inner = torch.empty_like(inner_RF)
        for e, start, stop in spans:
            torch.mm(grad_y[start:stop], down_EFL[e].t(), out=grad_inner[start:stop])
            torch.mm(inner_RF[start:stop].t(), grad_y[start:stop], out=grad_down[e])
        grad_up = swiglu_backward(grad_inner, up_RF)
        grad_rows = torch.empty_like(rows_RL, memory_format=torch.contiguous_format)
        for e, start, stop in spans:
            torch.mm(grad_up[start:stop], gate_up_EFL[e], out=grad_rows[start:stop])
            torch.mm(grad_up[start:stop].t(), rows_RL[start:stop], out=grad_gate_up[e])
        return grad_rows, grad_gate_up, grad_down, None


def _spans(counts: list[int]) -> list[tuple[int, int, int]]:
    spans, start = [], 0
    for e, count in enumerate(counts):
        if count:
            spans.append((e, start, start + count))
        start += count
    return spans


def loop_experts(rows_RL: Tensor, gate_up_EFL: Tensor, down_EFL: Tensor, counts_E: Tensor) -> Tensor:
    """SwiGLU of every expert on its rows, one expert after the other. [R, L] -> [R, L]"""
    y: Tensor = apply(_LoopExperts, rows_RL, gate_up_EFL, down_EFL, counts_E.tolist())
    return y


def grouped_experts(rows_RL: Tensor, gate_up_EFL: Tensor, down_EFL: Tensor, counts_E: Tensor) -> Tensor:
    """SwiGLU of every expert on its rows by grouped matrix products. [R, L] -> [R, L]

    The counts cover every row: rows past the last group would be left uninitialised.
    """
    ends = counts_E.cumsum(0).to(torch.int32)
    inner_RF = swiglu(F.grouped_mm(rows_RL, gate_up_EFL.transpose(1, 2), offs=ends))
    y_RL = F.grouped_mm(inner_RF, down_EFL, offs=ends)
    contiguous: Tensor = apply(_ContiguousGrad, y_RL)
    return contiguous


class _ContiguousGrad(torch.autograd.Function):
    """The grouped product refuses an expanded gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0].contiguous()


class Experts(nn.Module):
    """E experts SwiGLU: L -> F -> L. The input matrices lie as [gate; up] rows, the output matrix transposed."""

    def __init__(self, config: ModelConfig, compute: ComputeConfig) -> None:
        super().__init__()
        e, latent, width = config.experts, config.latent_width, config.expert_width
        self.backend = compute.experts
        self.gate_up = nn.Parameter(torch.empty(e, 2 * width, latent))
        self.down = nn.Parameter(torch.empty(e, width, latent))

    def forward(self, rows_RL: Tensor, counts_E: Tensor) -> Tensor:
        """Rows grouped by local expert, `counts_E` of each."""
        gate_up, down = _here(self.gate_up), _here(self.down)
        backend = choose_experts(self.backend, rows_RL.device.type, rows_RL.dtype, down.shape[2], down.shape[1])
        compute = grouped_experts if backend is ExpertBackend.GROUPED else loop_experts
        return compute(rows_RL, gate_up, down, counts_E)


def _here(weight: Tensor) -> Tensor:
    """The part of a weight that lies in this process: all of it, unless it is divided over processes."""
    to_local = getattr(weight, "to_local", None)
    local: Tensor = weight if to_local is None else to_local()
    return local
