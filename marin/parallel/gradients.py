"""Norm and clipping of gradients that live on several meshes, or on none."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from marin.parallel.sharding import local_of


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
