"""The processes that save and restore together, and how they agree."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from marin.checkpoint.errors import CheckpointError

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """The processes that save and restore together. `group` must take objects on the CPU (gloo); None is one process
    alone.
    """

    rank: int
    world_size: int
    group: dist.ProcessGroup | None

    @classmethod
    def alone(cls) -> Ranks:
        """One process without torch.distributed."""
        return cls(rank=0, world_size=1, group=None)

    def gather(self, value: T) -> list[T]:
        """The value of every rank, on every rank, in order of rank."""
        if self.group is None:
            return [value]
        gathered: list[Any] = [None] * self.world_size
        dist.all_gather_object(gathered, value, group=self.group)
        return gathered

    def any_of(self, flags: Sequence[bool]) -> list[bool]:
        """For each flag whether it is set on some rank: one small collective."""
        if self.world_size == 1 or self.group is None:
            return list(flags)
        values = torch.tensor(flags, dtype=torch.int32)
        dist.all_reduce(values, op=dist.ReduceOp.MAX, group=self.group)
        return [bool(value) for value in values.tolist()]

    def from_first(self, make: Callable[[], T]) -> T:
        """What `make` returns or raises on rank 0, on every rank."""
        result: list[Any] = [None, None]
        if self.rank == 0:
            try:
                result[0] = make()
            except Exception as error:  # raised again below, on every rank
                result[1] = that_travels(error)
        if self.group is not None:
            dist.broadcast_object_list(result, src=0, group=self.group)
        if result[1] is not None:
            raise result[1]
        value: T = result[0]
        return value


def that_travels(error: BaseException) -> BaseException:
    """The error, or its words where the object cannot be sent to other ranks (as with some store clients)."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return CheckpointError(f"{type(error).__name__}: {error}")
    return error
