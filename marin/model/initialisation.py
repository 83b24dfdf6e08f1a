"""Initial weights as a pure function of (seed, name, row): the same whatever the process holds of a tensor."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from marin.execution import derive_seed


def is_stack(name: str) -> bool:
    """True for tensors whose first dimension counts experts; each expert's matrices have their own seed."""
    return ".experts." in name


def initialise(tensor: Tensor, name: str, width: int, seed: int, first: int = 0) -> None:
    """Fill a parameter in place: truncated normal (σ = 0.5/√width, ±3σ) for matrices, and what the others start as.

    `tensor` is the whole parameter or, for stacks of experts, the experts from `first` on.
    """
    kind = name.rsplit(".", 1)[-1]
    with torch.no_grad():
        if kind.endswith("gain"):
            tensor.fill_(1.0)
        elif kind == "head_gate":
            tensor.zero_()
        elif kind == "taps":
            tensor.zero_()
            tensor[0] = 1.0
        elif is_stack(name):
            for i, matrix in enumerate(tensor.unbind(0)):
                _truncated_normal(matrix, width, derive_seed(seed, f"{name}/{first + i}"))
        else:
            _truncated_normal(tensor, width, derive_seed(seed, name))


def _truncated_normal(tensor: Tensor, width: int, seed: int) -> None:
    generator = torch.Generator(device=tensor.device).manual_seed(seed)
    sigma = 0.5 / math.sqrt(width)
    # Drawn in fp32 for every dtype, so that a float64 model starts where the fp32 one does.
    drawn = torch.empty(tensor.shape, dtype=torch.float32, device=tensor.device)
    torch.nn.init.trunc_normal_(drawn, std=sigma, a=-3 * sigma, b=3 * sigma, generator=generator)
    tensor.copy_(drawn)
