"""Sums and maxima over all data ranks."""

from __future__ import annotations

from collections.abc import Callable
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

    def begin_sum(self, tensor: Tensor) -> Callable[[], None]:
        """Begin to replace `tensor` by its sum over all ranks. On CUDA what is returned lets the stream wait, not the
        host.
        """
        work = dist.all_reduce(tensor, dist.ReduceOp.SUM, group=self.meshes.world.get_group(), async_op=True)
        assert work is not None

        def wait() -> None:
            work.wait()

        return wait

    def max_(self, tensor: Tensor) -> None:
        """Replace `tensor` by its maximum over all ranks."""
        dist.all_reduce(tensor, dist.ReduceOp.MAX, group=self.meshes.world.get_group())
