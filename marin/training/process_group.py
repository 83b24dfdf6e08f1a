"""torch.distributed on one rank: devices, threads, groups, and the few sums that the loop takes over all ranks."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from marin.checkpoint.ranks import Ranks
from marin.training.environment import RankEnvironment

COLLECTIVE_TIMEOUT = datetime.timedelta(minutes=60)
"""Longer than the watchdog allows any phase, so that it finds the ranks still in their collectives."""
FLIGHT_RECORD_VARIABLE, FLIGHT_RECORD_ENTRIES = "TORCH_FR_BUFFER_SIZE", "1000"
"""How torch is told to note the last collectives of a process, for who looks at one that hangs."""


@dataclass(frozen=True)
class RankContext:
    """This rank, its device, and the gloo group over which objects and CPU tensors go."""

    rank: int
    world_size: int
    device: torch.device
    group: dist.ProcessGroup

    @property
    def ranks(self) -> Ranks:
        """The same processes as checkpoints see them."""
        return Ranks(rank=self.rank, world_size=self.world_size, group=self.group)

    def sum(self, values: Tensor) -> Tensor:
        """`values`, on the CPU or on this rank's device, summed over all ranks, in place; returned for convenience.

        On a device the sum is queued there: nothing waits for it.
        """
        if self.world_size > 1:
            group = self.group if values.device.type == "cpu" else dist.group.WORLD
            dist.all_reduce(values, op=dist.ReduceOp.SUM, group=group)
        return values

    def largest(self, value: int) -> int:
        """The largest of all ranks' values."""
        values = torch.tensor(value, dtype=torch.int64)
        if self.world_size > 1:
            dist.all_reduce(values, op=dist.ReduceOp.MAX, group=self.group)
        return int(values)


@contextmanager
def process_group(environment: RankEnvironment) -> Iterator[RankContext]:
    """Joins the gang: NCCL on CUDA, gloo on the CPU, addressed by MASTER_ADDR and MASTER_PORT; leaves it on every exit.

    A process that has joined already stays in. Ranks of one machine share its cores: each takes an equal number of
    threads, at least one.
    """
    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(max(1, min(torch.get_num_threads(), cores // environment.local_world_size)))
    if torch.cuda.is_available():
        device = torch.device("cuda", environment.local_rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl"
    else:
        device = torch.device("cpu")
        backend = "gloo"
    os.environ.setdefault(FLIGHT_RECORD_VARIABLE, FLIGHT_RECORD_ENTRIES)
    had_joined = dist.is_initialized()
    if not had_joined:
        alone = environment.world_size == 1
        dist.init_process_group(
            backend,
            rank=environment.rank,
            world_size=environment.world_size,
            timeout=COLLECTIVE_TIMEOUT,
            store=dist.HashStore() if alone else None,  # type: ignore[attr-defined]  # torch does not declare it
        )
    try:
        group = dist.group.WORLD if backend == "gloo" else dist.new_group(backend="gloo", timeout=COLLECTIVE_TIMEOUT)
        assert group is not None
        yield RankContext(rank=environment.rank, world_size=environment.world_size, device=device, group=group)
    finally:
        if not had_joined:
            dist.destroy_process_group()
