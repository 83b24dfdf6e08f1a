"""The recipe's optimizer, over plain or divided parameters: MuonH for matrices, AdamH for the head, Adam for the rest.

A stack of experts is divided by whole experts, so each rank orthogonalises its own. Every other matrix is gathered for
its update; the momenta stay divided.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from marin.optim.hyperball import TINY, on_sphere, orthogonalise
from marin.parallel.sharding import local_of


class ThreeGroups(Optimizer):
    """Groups carry `rule` (muonh, adamh or adam), `lr`, `weight_decay` and the constants of their rule.

    `matrices` says how many matrices lie one below the other in a parameter of the muonh group (in each expert's slice
    of a stack of experts).
    """

    def __init__(self, groups: list[dict[str, Any]], matrices: dict[nn.Parameter, int]) -> None:
        super().__init__(groups, {"lr": 0.0, "weight_decay": 0.0})
        self.matrices = matrices

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # returns no loss
        """Update every parameter that has a gradient. A collective when parameters are divided."""
        if closure is not None:
            raise ValueError("closure is given; this optimizer steps on gradients that are there")
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                if group["rule"] == "muonh":
                    self._muonh(parameter, group, self.matrices[parameter])
                else:
                    self._adam(parameter, group)

    def _muonh(self, parameter: nn.Parameter, group: dict[str, Any], matrices: int) -> None:
        state = self.state[parameter]
        if not state:
            state["momentum"] = torch.zeros_like(parameter)
        momentum, gradient = local_of(state["momentum"]), local_of(_gradient(parameter))
        momentum.mul_(group["momentum"]).add_(gradient)
        direction = gradient.add(momentum, alpha=group["momentum"])
        weight = local_of(parameter)
        if parameter.dim() == 3 or not isinstance(parameter, DTensor):
            if weight.numel():
                weight.copy_(_updated(weight, direction, group, matrices))
            return
        whole = parameter.full_tensor()
        gathered = DTensor.from_local(
            direction, parameter.device_mesh, parameter.placements, shape=parameter.shape, stride=parameter.stride()
        ).full_tensor()
        _keep_own_part(parameter, _updated(whole, gathered, group, matrices))

    def _adam(self, parameter: nn.Parameter, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        state["step"] += 1
        step = int(state["step"])
        beta1, beta2 = group["betas"]
        weight, gradient = local_of(parameter), local_of(_gradient(parameter))
        first, second = local_of(state["exp_avg"]), local_of(state["exp_avg_sq"])
        first.lerp_(gradient, 1 - beta1)
        second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        scale = (second / (1 - beta2**step)).sqrt_().add_(group["eps"])
        direction = (first / (1 - beta1**step)).div_(scale)
        if group["rule"] == "adam":
            weight.mul_(1 - group["lr"] * group["weight_decay"]).add_(direction, alpha=-group["lr"])
            return
        before = _whole_norm(weight, parameter)
        moved = weight - direction * (group["lr"] * before / _whole_norm(direction, parameter)).to(weight.dtype)
        weight.copy_(moved * (before / _whole_norm(moved, parameter)).to(weight.dtype))


def _updated(weight: Tensor, direction: Tensor, group: dict[str, Any], matrices: int) -> Tensor:
    stack = (-1, weight.shape[-2] // matrices, weight.shape[-1])
    dtype = torch.bfloat16 if weight.device.type == "cuda" and weight.dtype == torch.float32 else weight.dtype
    orthogonal = orthogonalise(direction.reshape(stack), dtype)
    return on_sphere(weight.reshape(stack), orthogonal, group["lr"]).view(weight.shape)


def _gradient(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


def _whole_norm(local: Tensor, parameter: Tensor) -> Tensor:
    """Frobenius norm of the whole matrix of which `local` is this rank's part, float64."""
    square = torch.linalg.vector_norm(local, dtype=torch.float64).square()
    if isinstance(parameter, DTensor):
        for dim, placement in enumerate(parameter.placements):
            if placement.is_shard():
                dist.all_reduce(square, group=parameter.device_mesh.get_group(dim))
    norm: Tensor = square.sqrt()
    return norm.clamp(min=TINY)


def _keep_own_part(parameter: DTensor, whole: Tensor) -> None:
    """Copy this rank's rows of an updated matrix; parameters are divided along their first dimension only."""
    local = parameter.to_local()
    first = 0
    for dim, placement in enumerate(parameter.placements):
        if placement.is_shard():
            ranks = parameter.device_mesh.size(dim)
            first = parameter.device_mesh.get_local_rank(dim) * -(-parameter.shape[0] // ranks)
    if local.numel():
        local.copy_(whole[first : first + local.shape[0]])
