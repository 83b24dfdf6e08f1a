"""The recipe's optimizer, over plain or divided parameters: MuonH for matrices, AdamH for the head, Adam for the rest.

The state of a parameter is divided as the parameter is.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from marin.optim.access import Access, RuleOptimizer, gradient_of
from marin.optim.dealing import ROUND_ELEMENTS
from marin.optim.hyperball import TINY
from marin.optim.muonh import MuonH
from marin.parallel.parts import local_of


class ThreeGroups(RuleOptimizer):
    """Groups carry `rule` (muonh, adamh or adam), `lr`, `weight_decay` and the constants of their rule.

    `matrices` says how many matrices lie one below the other in a parameter of the muonh group (in each expert's slice
    of a stack of experts).
    """

    def __init__(
        self,
        groups: list[dict[str, Any]],
        matrices: dict[Tensor, int],
        *,
        on_host: bool = False,
        round_elements: int = ROUND_ELEMENTS,
    ) -> None:
        super().__init__(groups, on_host=on_host)
        self._muonh = MuonH(matrices, round_elements)

    def update(self, parameters: list[Tensor], group: dict[str, Any], access: Access) -> None:
        """One step of the group's rule."""
        if group["rule"] == "muonh":
            for parameter in parameters:
                if not self.state[parameter]:
                    self.state[parameter]["momentum"] = self.zeros(parameter)
            self._muonh.update(parameters, [self.state[p]["momentum"] for p in parameters], group, access)
            return
        for parameter in parameters:
            self._adam(parameter, group, access)

    def _adam(self, parameter: Tensor, group: dict[str, Any], access: Access) -> None:
        weight, gradient = local_of(parameter), gradient_of(parameter)
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), device=weight.device)
            state["exp_avg"] = self.zeros(parameter)
            state["exp_avg_sq"] = self.zeros(parameter)
        step = self.count(parameter, access)
        beta1, beta2 = group["betas"]
        stored = local_of(state["exp_avg"]), local_of(state["exp_avg_sq"])
        first, second = (access.read(moment, weight.device) for moment in stored)
        first = first.lerp(gradient, 1 - beta1)
        second = second.mul(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        access.write(stored[0], first)
        access.write(stored[1], second)
        scale = (second / (1 - beta2**step)).sqrt_().add_(group["eps"])
        direction = (first / (1 - beta1**step)).div_(scale)
        if group["rule"] == "adam":
            decayed = weight.mul(1 - group["lr"] * group["weight_decay"])
            access.write(weight, decayed.add_(direction, alpha=-group["lr"]))
            return
        before = _whole_norm(weight, parameter)
        moved = weight - direction * (group["lr"] * before / _whole_norm(direction, parameter)).to(weight.dtype)
        access.write(weight, moved * (before / _whole_norm(moved, parameter)).to(weight.dtype))


def _whole_norm(local: Tensor, parameter: Tensor) -> Tensor:
    """Frobenius norm of the whole matrix of which `local` is this rank's part, float64."""
    square = torch.linalg.vector_norm(local, dtype=torch.float64).square()
    if isinstance(parameter, DTensor):
        for dim, placement in enumerate(parameter.placements):
            if hasattr(placement, "dim"):  # also the strided shards of a nested division
                dist.all_reduce(square, group=parameter.device_mesh.get_group(dim))
    norm: Tensor = square.sqrt()
    return norm.clamp(min=TINY)
