"""torch's private doors are there, behave, and are used from one module only."""

import re
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import marin
from marin.model.config import ModelConfig
from marin.model.transformer import Transformer
from marin.parallel import compat
from marin.parallel.config import ParallelPlan
from marin.parallel.meshes import build_meshes
from marin.parallel.parts import local_of
from marin.parallel.sharding import parallelise
from tests.parallel.ranks import on_ranks

ROOMS = ("model", "parallel", "optim")


def uneven_exchange() -> tuple[list[float], list[float], list[int]]:
    rank = dist.get_rank()
    sent = [1, 2] if rank == 0 else [0, 0]
    received = [1, 0] if rank == 0 else [2, 0]
    rows = torch.arange(float(sum(sent))).unsqueeze(1).requires_grad_()
    arrived = compat.exchange_rows(rows, received, sent, dist.group.WORLD)
    (arrived * (10 + rank)).sum().backward()
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("world",))
    view = compat.unflatten(mesh, 0, (1, 2), ("a", "b"))
    return arrived.flatten().tolist(), rows.grad.flatten().tolist(), [view["a"].size(), view["b"].size()]


def test_rows_travel_unevenly_and_their_gradients_come_back():
    first, second = on_ranks(2, uneven_exchange)
    assert first == ([0.0], [10.0, 11.0, 11.0], [1, 2])
    assert second == ([1.0, 2.0], [], [1, 2])


def sharded_hero(layers: int) -> tuple[int, int]:
    """Bytes-free: the hero's shape on meta tensors over a process group of 704 ranks that does nothing."""
    from dataclasses import replace

    compat.fake_process_group(704)
    try:
        plan = ParallelPlan(dp_shard=704, ep=64)
        config = replace(ModelConfig.hero(), layers=layers)
        with torch.device("meta"):
            model = Transformer(config)
        parallelise(model, build_meshes(plan, "cpu"))
        here = sum(local_of(p).numel() for p in model.parameters())
        return here, sum(p.numel() for p in model.parameters())
    finally:
        dist.destroy_process_group()


def test_the_hero_divides_over_its_fleet_without_memory():
    here, everywhere = sharded_hero(2)
    assert everywhere > 20e9
    assert here < everywhere / 300


def test_private_imports_of_torch_lie_in_compat_only():
    root = Path(marin.__path__[0])
    private = re.compile(r"(from|import) torch[\w.]*\._\w+|torch[\w.]*\._(?!C\b)\w+\(|\b_unflatten\(")
    guilty = [
        str(path.relative_to(root))
        for room in ROOMS
        for path in (root / room).rglob("*.py")
        if path.name != "compat.py" and private.search(path.read_text())
    ]
    assert guilty == []
