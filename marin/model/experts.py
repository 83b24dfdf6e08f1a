"""The routed experts' matrices, and the choice of the code that multiplies them.

Rows come grouped by expert. Shape letters: see `marin.model.outputs`; here E counts the experts whose matrices lie in
this process.
"""

from __future__ import annotations

import logging
from functools import cache

import torch
from torch import Tensor, nn

from marin.model.config import ComputeConfig, ExpertBackend, ModelConfig
from marin.model.expert_backends import grouped_experts, loop_experts, padded_experts

logger = logging.getLogger(__name__)

GROUPED_ALIGNMENT_BYTES = 16
"""Rows of grouped matrix products must be multiples of this."""

FEW_ROWS = 32
"""Mean rows of an expert from which on the loop is as fast as any other on a CPU.

CPU time of the loop over that of the others, forward and backward, fp32, one thread, 16 experts, loads up to 1.5 times
the mean:

| rows an expert | 4 | 16 | 64 | 128 | 256 |
| --- | ---: | ---: | ---: | ---: | ---: |
| grouped, 64 -> 64 -> 64 | 1.67 | 1.49 | 1.23 | 1.11 | 1.13 |
| padded, 64 -> 64 -> 64 | 1.80 | 1.53 | 0.96 | 0.81 | 0.60 |
| grouped, 128 -> 128 -> 128 | 1.26 | 1.14 | 1.03 | 0.85 | 1.04 |
| padded, 128 -> 128 -> 128 | 1.21 | 1.04 | 0.74 | 0.59 | 0.62 |
| grouped, 256 -> 128 -> 256 | 1.12 | 1.07 | 1.05 | 0.99 | 1.05 |
| padded, 256 -> 128 -> 256 | 1.00 | 0.97 | 0.75 | 0.65 | 0.62 |
"""

COMPUTE = {
    ExpertBackend.LOOP: loop_experts,
    ExpertBackend.PADDED: padded_experts,
    ExpertBackend.GROUPED: grouped_experts,
}


@cache
def choose_experts(
    wanted: ExpertBackend, device: str, dtype: torch.dtype, latent: int, width: int, few_rows: bool = False
) -> ExpertBackend:
    """The back end for rows of `latent` values and experts of `width` inner ones; logs its reason once.

    `few_rows` says that experts have so few rows that one call for all of them beats many small products: fewer
    than `FEW_ROWS` on average. Raises ValueError when the grouped product is wanted but cannot be had.
    """
    if wanted in (ExpertBackend.LOOP, ExpertBackend.PADDED):
        logger.info("experts: %s (as configured)", wanted.value)
        return wanted
    obstacle = grouped_obstacle(device, dtype, latent, width)
    if wanted is ExpertBackend.GROUPED:
        if obstacle:
            raise ValueError(f"compute.experts is grouped, but {obstacle}; take auto, loop or padded")
        logger.info("experts: grouped (as configured)")
        return wanted
    rows = f"{'fewer' if few_rows else 'more'} than {FEW_ROWS} rows an expert"
    if obstacle is None and (device != "cpu" or few_rows):
        chosen, reason = ExpertBackend.GROUPED, f"{device}, {dtype}, aligned rows, {rows}"
    else:
        chosen = ExpertBackend.PADDED if few_rows else ExpertBackend.LOOP
        reason = f"{obstacle}; {rows}" if obstacle else f"{device}, {rows}"
    logger.info("experts: %s (%s)", chosen.value, reason)
    return chosen


def grouped_obstacle(device: str, dtype: torch.dtype, latent: int, width: int) -> str | None:
    """Why the grouped product cannot be had for such rows; None if it can."""
    size = torch.empty((), dtype=dtype).element_size()
    if any(n * size % GROUPED_ALIGNMENT_BYTES for n in (latent, width)):
        return (
            f"rows of {latent} and {width} values of {size} bytes are not multiples of {GROUPED_ALIGNMENT_BYTES} bytes"
        )
    if device == "cuda" and dtype != torch.bfloat16:
        return f"the grouped product on cuda takes bf16, not {dtype}"
    if dtype == torch.float64:
        return "the grouped product has no float64"
    return None


class Experts(nn.Module):
    """E experts SwiGLU: L -> F -> L. The input matrices lie as [gate; up] rows, the output matrix transposed."""

    def __init__(self, config: ModelConfig, compute: ComputeConfig) -> None:
        super().__init__()
        e, latent, width = config.experts, config.latent_width, config.expert_width
        self.backend = compute.experts
        self.gate_up = nn.Parameter(torch.empty(e, 2 * width, latent))
        self.down = nn.Parameter(torch.empty(e, width, latent))

    def forward(self, rows_RL: Tensor, counts_E: Tensor, exact: bool = True) -> Tensor:
        """Rows grouped by local expert, `counts_E` of each. `exact` says that no row is behind the last group; those
        that are come back as zeros.
        """
        gate_up, down = _here(self.gate_up), _here(self.down)
        experts, width, latent = down.shape
        few_rows = rows_RL.shape[0] < FEW_ROWS * experts
        backend = choose_experts(self.backend, rows_RL.device.type, rows_RL.dtype, latent, width, few_rows)
        return COMPUTE[backend](rows_RL, gate_up, down, counts_E, exact)


def _here(weight: Tensor) -> Tensor:
    """The part of a weight that lies in this process: all of it, unless it is divided over processes."""
    to_local = getattr(weight, "to_local", None)
    local: Tensor = weight if to_local is None else to_local()
    return local
