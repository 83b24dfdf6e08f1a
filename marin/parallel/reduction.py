"""Sums and maxima over all data ranks."""

from __future__ import annotations

from dataclasses import dataclass

import torch.distributed as dist
from torch import Tensor

from marin.parallel.meshes import Meshes


@dataclass(frozen=True)
class MeshReducer:
    """`marin.model.outputs.Reducer` over every rank that reads data."""

    meshes: Meshes

    def sum_(self, tensor: Tensor) -> None:
        """Replace `tensor` by its sum over all ranks; integers stay integers."""
        dist.all_reduce(tensor, dist.ReduceOp.SUM, group=self.meshes.world.get_group())

    def max_(self, tensor: Tensor) -> None:
        """Replace `tensor` by its maximum over all ranks."""
        dist.all_reduce(tensor, dist.ReduceOp.MAX, group=self.meshes.world.get_group())
