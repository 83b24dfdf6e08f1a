"""Which part of a divided tensor lies on this rank."""

from __future__ import annotations

from torch import Tensor
from torch.distributed.tensor import DTensor

from marin.parallel.compat import is_split_inside


def local_of(tensor: Tensor) -> Tensor:
    """The part of a tensor that lies on this rank."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def own_rows(tensor: Tensor) -> slice:
    """Which rows of the whole tensor `local_of(tensor)` are: all of a plain one, an empty slice where none lie here.

    Parameters are divided along their first dimension only: experts first over ep and each part then over efsdp,
    everything else over dp_shard, in parts of equal size but for the last ones.
    """
    start, stop = 0, tensor.shape[0] if tensor.dim() else 1
    if not isinstance(tensor, DTensor):
        return slice(start, stop)
    mesh = tensor.device_mesh
    sharding = [dim for dim, placement in enumerate(tensor.placements) if not placement.is_replicate()]
    for dim in sorted(sharding, key=lambda dim: is_split_inside(tensor.placements[dim])):
        if getattr(tensor.placements[dim], "dim", None) != 0:
            raise ValueError(f"a tensor of placements {tensor.placements} is not divided by rows")
        share = -(-(stop - start) // mesh.size(dim))
        first = start + mesh.get_local_rank(dim) * share
        start, stop = min(first, stop), min(first + share, stop)
    return slice(start, stop)
