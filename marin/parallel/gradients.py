"""Norm and clipping of gradients that live on several meshes, or on none; norms by group of parameters."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from marin.parallel.parts import local_of

GROUPS = (
    *("embedding", "attention", "gates", "norms", "convolutions"),
    *("router", "latent", "experts", "shared", "head", "other"),
)
"""Groups of parameters whose norms are reported apart: they go wrong in different ways."""

_GROUP_OF_PART = {
    "embedding": "embedding",
    "attention": "attention",
    "router": "router",
    "experts": "experts",
    "shared": "shared",
    "head": "head",
}


def gradient_norm(model: nn.Module) -> Tensor:
    """Euclidean norm of all gradients of the whole model, a plain 0-d tensor that is the same on every rank.

    A collective (one number is summed over all ranks): every rank must call it. Parameters without a gradient count as
    zero.
    """
    by_copies: dict[int, list[Tensor]] = defaultdict(list)
    divided = False
    for gradient in _gradients(model.parameters()):
        divided |= isinstance(gradient, DTensor)
        by_copies[_copies(gradient)].append(local_of(gradient))
    if not by_copies:
        return torch.zeros(())
    squares = [get_total_norm(gradients).double().square() / copies for copies, gradients in by_copies.items()]
    total = torch.stack(squares).sum()
    if divided:
        dist.all_reduce(total)
    kind = next(iter(by_copies.values()))[0].dtype
    return total.sqrt().to(kind)


def group_of(name: str) -> str:
    """The group of the parameter with this qualified name, one of `GROUPS`."""
    *parts, kind = name.split(".")
    if kind == "head_gate":
        return "gates"
    if kind == "taps":
        return "convolutions"
    if kind.endswith("gain") or (parts and parts[-1].endswith("norm")):
        return "norms"
    if kind.startswith("latent"):
        return "latent"
    for part in reversed(parts):
        if part in _GROUP_OF_PART:
            return _GROUP_OF_PART[part]
    return "other"


def gradient_norms_by_group(model: nn.Module) -> dict[str, float]:
    """Euclidean norm of the gradients of every group in `GROUPS`, over the whole model and the same on every rank.

    A collective: the numbers are summed over all ranks in one call. Their squares add up to that of
    `gradient_norm`. A group without parameters or gradients has 0.
    """
    return _norms_by_group((n, p.grad) for n, p in model.named_parameters() if p.grad is not None)


def weight_norms_by_group(model: nn.Module) -> dict[str, float]:
    """Euclidean norm of the weights of every group in `GROUPS`; a collective like `gradient_norms_by_group`."""
    return _norms_by_group((name, parameter.detach()) for name, parameter in model.named_parameters())


def _norms_by_group(named: Iterator[tuple[str, Tensor]]) -> dict[str, float]:
    squares: list[Tensor] = []
    places: list[int] = []
    weights: list[float] = []
    divided = False
    for name, tensor in named:
        divided |= isinstance(tensor, DTensor)
        local = local_of(tensor)
        squares.append(torch.linalg.vector_norm(local, dtype=torch.promote_types(local.dtype, torch.float32)).double())
        places.append(GROUPS.index(group_of(name)))
        weights.append(1 / _copies(tensor))
    if not squares:
        return dict.fromkeys(GROUPS, 0.0)
    device = squares[0].device
    parts = torch.stack(squares).square() * torch.tensor(weights, dtype=torch.float64, device=device)
    sums = torch.zeros(len(GROUPS), dtype=torch.float64, device=device)
    sums.index_add_(0, torch.tensor(places, device=device), parts)
    if divided:
        dist.all_reduce(sums)
    return dict(zip(GROUPS, sums.sqrt().tolist(), strict=True))


def _copies(gradient: Tensor) -> int:
    """Ranks that hold the same part of a gradient."""
    if not isinstance(gradient, DTensor):
        return 1
    sizes = zip(gradient.device_mesh.shape, gradient.placements, strict=True)
    held = math.prod(size for size, placement in sizes if placement.is_replicate())
    return held * (dist.get_world_size() // gradient.device_mesh.size())


def clip_gradients(model: nn.Module, norm: Tensor, maximum: float) -> None:
    """Scale all gradients by maximum / norm when `norm` (of `gradient_norm`) is larger, without a host wait."""
    if maximum <= 0:
        raise ValueError(f"maximum is {maximum}; give a positive norm, or do not clip")
    by_mesh: dict[object, list[nn.Parameter]] = defaultdict(list)
    for parameter in model.parameters():
        gradient = parameter.grad
        if gradient is not None:
            by_mesh[gradient.device_mesh if isinstance(gradient, DTensor) else None].append(parameter)
    for parameters in by_mesh.values():
        clip_grads_with_norm_(parameters, maximum, norm)


def _gradients(parameters: Iterable[nn.Parameter]) -> list[Tensor]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]
