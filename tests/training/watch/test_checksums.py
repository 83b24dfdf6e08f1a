"""Checksums of bits, and which ranks hold the same part of a divided parameter."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset

from marin.model.transformer import Transformer
from marin.parallel.compat import fake_process_group
from marin.parallel.config import ParallelPlan
from marin.parallel.meshes import build_meshes
from marin.parallel.sharding import parallelise
from marin.training.watch.checksums import checksum, part_number
from tests.training.toy import toy_model


def test_a_checksum_depends_on_every_bit_and_its_place_and_on_nothing_else() -> None:
    random = np.random.default_rng(5)
    values = torch.from_numpy(random.standard_normal((3, 700)).astype(np.float32))
    assert checksum(values) == checksum(values.clone()) == checksum(values.t().contiguous().t())
    seen = {checksum(values)}
    for place in random.permutation(values.numel())[:200].tolist():
        changed = values.clone().flatten()
        changed.view(torch.int32)[place] ^= 1
        seen.add(checksum(changed))
    seen.add(checksum(values.flip(0)))
    seen.add(checksum(torch.where(values == values[0, 0], -values, values)))
    assert len(seen) == 1 + 200 + 2
    swapped = values.clone()
    swapped[0, 0], swapped[0, 1] = values[0, 1], values[0, 0]
    assert checksum(swapped) != checksum(values)
    nan = torch.tensor([float("nan"), 1.0], dtype=torch.float64)
    assert checksum(nan) == checksum(nan.clone())


@pytest.mark.parametrize(
    "plan",
    [ParallelPlan(dp_shard=4, ep=2), ParallelPlan(dp_replicate=2, dp_shard=2, ep=2), ParallelPlan(dp_replicate=4)],
    ids=str,
)
def test_ranks_count_as_copies_exactly_where_they_hold_the_same_rows(plan: ParallelPlan) -> None:
    fake_process_group(4)
    try:
        with torch.device("meta"):
            model = Transformer(toy_model())
        parallelise(model, build_meshes(plan))
        for name, parameter in model.named_parameters():
            assert isinstance(parameter, DTensor)
            if parameter.shape[0] < plan.dp_shard:
                continue  # some parts are empty, and all begin at the end
            held = [_held_by(parameter, rank) for rank in range(4)]
            for part, offset in held:
                assert [p == part for p, _ in held] == [o == offset for _, o in held], name
            assert len(set(held)) == plan.dp_shard
    finally:
        dist.destroy_process_group()


def _held_by(parameter: DTensor, rank: int) -> tuple[int, tuple[int, ...]]:
    """Our number of a rank's part, and where torch says that it begins."""
    mesh, placements = parameter.device_mesh, parameter.placements
    (coordinate,) = (mesh.mesh == rank).nonzero().tolist()
    _, offset = _compute_local_shape_and_global_offset(
        parameter.shape, mesh.shape, lambda dim: coordinate[dim], placements
    )
    return part_number(placements, mesh.shape, coordinate), tuple(offset)
