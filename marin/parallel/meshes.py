"""One mesh of all ranks and its two views: dense for everything, sparse for the routed experts."""

from __future__ import annotations

from dataclasses import dataclass

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from marin.parallel.compat import unflatten
from marin.parallel.config import ParallelPlan


@dataclass(frozen=True)
class Meshes:
    """The meshes of a plan; data ranks are numbered replicate-major, as the global ranks while pp = tp = cp = 1."""

    plan: ParallelPlan
    device_type: str
    world: DeviceMesh
    dense: DeviceMesh
    """(dp_replicate, dp_shard)"""
    sparse: DeviceMesh
    """(dp_replicate, efsdp, ep)"""

    @property
    def dense_shard(self) -> DeviceMesh:
        """Mesh that shards everything but the experts: 1-D, or 2-D (replicate, shard)."""
        return self.dense["dp_shard"] if self.plan.dp_replicate == 1 else self.dense

    @property
    def expert_shard(self) -> DeviceMesh:
        """Mesh that shards the parameters of the experts that one `ep` rank has."""
        return self.sparse["efsdp"] if self.plan.dp_replicate == 1 else self.sparse["dp_replicate", "efsdp"]

    @property
    def expert_parallel(self) -> DeviceMesh:
        """Mesh over which the experts are divided."""
        return self.sparse["ep"]


def build_meshes(plan: ParallelPlan, device_type: str = "cpu") -> Meshes:
    """Meshes of `plan` over the running process group, whose world size must be the plan's."""
    if not dist.is_initialized():
        raise RuntimeError("build_meshes needs a process group; call torch.distributed.init_process_group first")
    world_size = dist.get_world_size()
    if plan.world_size != world_size:
        raise ValueError(f"the plan ({plan}) is for {plan.world_size} ranks, the process group has {world_size}")
    world = init_device_mesh(device_type, (world_size,), mesh_dim_names=("world",))
    dense = unflatten(world, 0, (plan.dp_replicate, plan.dp_shard), ("dp_replicate", "dp_shard"))
    sparse = unflatten(world, 0, (plan.dp_replicate, plan.efsdp, plan.ep), ("dp_replicate", "efsdp", "ep"))
    return Meshes(plan, device_type, world, dense, sparse)
