"""Orthogonalisation and the step that keeps a matrix on its sphere; both work on stacks [M, rows, columns]."""

from __future__ import annotations

import torch
from torch import Tensor

QUINTIC = (
    (4.0848, -6.8946, 2.9270),
    (3.9505, -6.3029, 2.6377),
    (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046),
    (2.8366, -3.0525, 1.2012),
)
"""One triple a step: X ← a X + b (X Xᵀ) X + c (X Xᵀ)² X."""

TINY = 1e-30


def orthogonalise(matrices: Tensor, dtype: torch.dtype) -> Tensor:
    """Newton–Schulz: pushes the singular values of every matrix towards one. [M, rows, columns] in `dtype`"""
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = (x / _norms(x).to(x.dtype)).to(dtype)
    for a, b, c in QUINTIC:
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


def on_sphere(weights: Tensor, direction: Tensor, rate: float) -> Tensor:
    """w' = w − rate · u · ‖w‖/‖u‖, scaled back to ‖w‖: the norm of every matrix stays what it was."""
    before = _norms(weights)
    direction = direction.to(weights.dtype)
    moved = weights - direction * (rate * before / _norms(direction)).to(weights.dtype)
    return moved * (before / _norms(moved)).to(weights.dtype)


def _norms(matrices: Tensor) -> Tensor:
    # Sums of fp32 squares drift by 1e-6 in a hundred steps.
    norms: Tensor = torch.linalg.vector_norm(matrices, dim=(-2, -1), keepdim=True, dtype=torch.float64)
    return norms.clamp(min=TINY)
