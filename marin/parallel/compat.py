"""Every private door of torch that this project uses, and nothing else.

torch gives these no stable name; a test checks that they are there and behave, so that a new torch fails here and not
in a run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, OffloadPolicy
from torch.distributed.tensor.placement_types import Placement
from torch.utils._python_dispatch import TorchDispatchMode as DispatchMode

__all__ = [
    "DispatchMode",
    "add_parameter_group",
    "exchange_rows",
    "fake_process_group",
    "group_of",
    "is_split_inside",
    "unflatten",
]


def unflatten(mesh: DeviceMesh, dim: int, sizes: tuple[int, ...], names: tuple[str, ...]) -> DeviceMesh:
    """A view of `mesh` with dimension `dim` split into `sizes`."""
    return mesh._unflatten(dim, sizes, names)


def add_parameter_group(
    module: FSDPModule, parameters: Sequence[nn.Parameter], mesh: DeviceMesh, mp_policy: MixedPrecisionPolicy
) -> None:
    """Let FSDP gather and reduce `parameters`, which it ignored so far, with those of `module` but by themselves.

    So one module has groups of another type or on another mesh without modules of their own in between: they are
    gathered when the module starts, and recomputation inside of the module gathers nothing again.
    """
    from torch.distributed.fsdp._fully_shard._fsdp_common import FSDPMeshInfo
    from torch.distributed.fsdp._fully_shard._fsdp_init import (
        _get_device_from_mesh,
        _get_mesh_info,
        _get_post_forward_mesh_info,
        _init_param_group,
    )

    info = _get_mesh_info(mesh)
    assert isinstance(info, FSDPMeshInfo)
    assert isinstance(module, nn.Module)
    _init_param_group(
        module._get_fsdp_state(),
        list(parameters),
        (module,),
        info,
        _get_post_forward_mesh_info(True, info),
        _get_device_from_mesh(mesh),
        None,
        mp_policy,
        OffloadPolicy(),
    )


def is_split_inside(placement: Placement) -> bool:
    """True for a dimension that divides what dimensions to its right have divided before."""
    return hasattr(placement, "split_factor")


def exchange_rows(rows: Tensor, received: list[int], sent: list[int], group: dist.ProcessGroup) -> Tensor:
    """Uneven all-to-all of rows, with gradient: `sent[i]` rows go to rank i, `received[i]` come from it."""
    from torch.distributed._functional_collectives import all_to_all_single_autograd

    return _waited(all_to_all_single_autograd(rows, received, sent, group))


def _waited(tensor: Tensor) -> Tensor:
    from torch.distributed._functional_collectives import AsyncCollectiveTensor

    if isinstance(tensor, AsyncCollectiveTensor):
        waited: Tensor = tensor.wait()
        return waited
    return tensor


def group_of(argument: Any) -> dist.ProcessGroup:
    """The process group that a collective was given, as an operation sees it: boxed, or by its name."""
    if isinstance(argument, str):
        from torch.distributed import distributed_c10d

        return distributed_c10d._resolve_process_group(argument)  # type: ignore[attr-defined,arg-type]  # private
    return dist.ProcessGroup.unbox(argument)


def fake_process_group(world_size: int, rank: int = 0) -> None:
    """Start a process group of `world_size` ranks whose collectives do nothing: for planning without machines."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=rank, world_size=world_size, store=FakeStore())


def collective_flight_record() -> dict[str, Any]:
    """The last collectives of this process, by who noted them: `fr` (gloo and others), `nccl` in a build with CUDA.

    Empty lists of entries unless TORCH_FR_BUFFER_SIZE was set before the process group was made.
    """
    c10d = getattr(torch._C, "_distributed_c10d", None)
    dumps = {name: getattr(c10d, f"_dump_{name}_trace_json", None) for name in ("fr", "nccl")}
    return {name: json.loads(dump()) for name, dump in dumps.items() if dump is not None}
