"""Figures of every step that cost next to nothing: memory, routing by layer, time inside the exchange; and norms by
group now and then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from marin.model.outputs import RouterStatistics
from marin.parallel.gradients import gradient_norms_by_group, weight_norms_by_group
from marin.training.hooks import Hook
from marin.training.watch.config import due
from marin.training.watch.forensics import exchange_clocks, resident_bytes

if TYPE_CHECKING:
    from marin.training.loop import TrainingLoop

PERCENTILES = (1, 50, 99)


class StepFigures(Hook):
    """`memory` (of rank 0), `routing` (of all ranks), `life`, and the phase `exchange` (of rank 0)."""

    def __init__(self, life: str) -> None:
        self.name = ""
        self._life = life
        self._loop: TrainingLoop | None = None
        self._clocks: list[Any] = []

    def start(self, loop: TrainingLoop) -> None:
        self._loop = loop
        self._clocks = list({id(clock): clock for clock in exchange_clocks(loop)}.values())
        for clock in self._clocks:
            clock.take()

    def after_update(self, step: int) -> None:
        assert self._loop is not None
        if self._clocks:
            self._loop.clock.add("exchange", sum(clock.take() for clock in self._clocks))

    def figures(self, step: int) -> Mapping[str, Any]:
        assert self._loop is not None
        if self._loop.ranks.rank:
            return {}
        model = self._loop.trainee.model
        found: dict[str, Any] = {"life": self._life, "memory": memory_figures(self._loop.ranks.device)}
        statistics = model.router_statistics()
        if statistics is not None:
            found["routing"] = routing_figures(statistics, torch.stack([router.bias for router in model.routers()]))
        return found


def memory_figures(device: torch.device) -> dict[str, Any]:
    """Gigabytes: what the process has in RAM, and on a device what torch gave out, holds, and gave out at most."""
    figures: dict[str, Any] = {"device": device.type, "host_resident_gb": resident_bytes() / 1e9}
    if device.type == "cuda":
        figures["allocated_gb"] = torch.cuda.memory_allocated(device) / 1e9
        figures["reserved_gb"] = torch.cuda.memory_reserved(device) / 1e9
        figures["peak_allocated_gb"] = torch.cuda.max_memory_allocated(device) / 1e9
    return figures


def routing_figures(statistics: RouterStatistics, bias_LE: Tensor) -> dict[str, Any]:
    """How evenly the experts of each layer are used, and how far the biases went to make it so.

    `load_percentiles_by_layer`: the 1st, 50th and 99th percentile over experts of the load over its mean.
    `entropy_share`: entropy of the load over that of a uniform one, mean over layers; 1 is even at any number of
    experts. `bias_largest` stays on the device of the biases.
    """
    load_LE = statistics.load_LE.to(torch.float64)
    experts = load_LE.shape[1]
    share_LE = load_LE / load_LE.sum(1, keepdim=True).clamp(min=1)
    entropy_L = torch.special.entr(share_LE).sum(1)
    uniform = torch.tensor(float(experts), dtype=torch.float64).log()
    entropy_share_L = entropy_L / uniform if experts > 1 else torch.ones_like(entropy_L)
    quantiles = torch.tensor([percent / 100 for percent in PERCENTILES], dtype=torch.float64)
    percentiles_LQ = torch.quantile(share_LE * experts, quantiles, dim=1).t()
    return {
        "entropy_share": float(entropy_share_L.mean()),
        "entropy_share_lowest": float(entropy_share_L.min()),
        "dead_experts_by_layer": (statistics.load_LE == 0).sum(1).tolist(),
        "load_percentiles_by_layer": percentiles_LQ.tolist(),
        "bias_largest": bias_LE.detach().abs().max(),
    }


class GroupNorms(Hook):
    """`norms`: gradients and weights by group of parameters, every so many steps; a collective."""

    def __init__(self, every: int) -> None:
        self.name = ""
        self._every = every
        self._loop: TrainingLoop | None = None
        self._found: dict[str, Any] = {}

    def start(self, loop: TrainingLoop) -> None:
        self._loop = loop

    def after_backward(self, step: int) -> None:
        assert self._loop is not None
        if due(self._every, step):
            model = self._loop.trainee.model
            self._found = {"gradient": gradient_norms_by_group(model), "weight": weight_norms_by_group(model)}

    def figures(self, step: int) -> Mapping[str, Any]:
        found, self._found = self._found, {}
        return {"norms": found} if found else {}
