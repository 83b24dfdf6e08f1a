"""Every private door of torch that this project uses, and nothing else.

torch gives these no stable name; a test checks that they are there and behave, so that a new torch fails here and not
in a run.
"""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh


def unflatten(mesh: DeviceMesh, dim: int, sizes: tuple[int, ...], names: tuple[str, ...]) -> DeviceMesh:
    """A view of `mesh` with dimension `dim` split into `sizes`."""
    return mesh._unflatten(dim, sizes, names)


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


def fake_process_group(world_size: int, rank: int = 0) -> None:
    """Start a process group of `world_size` ranks whose collectives do nothing: for planning without machines."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=rank, world_size=world_size, store=FakeStore())
