"""A copy of a rank's state in host memory: what a save writes while training goes on.

Copying is all that training waits for. The buffers are made once and used again by every save, so that a save takes
the rank's part of the state once more, and no allocation. On CUDA they are page-locked, which makes the copy a
transfer at the speed of the bus.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import MetadataIndex

from marin.checkpoint.tensors import local_part


class HostCopy:
    """This rank's part of named tensors, in buffers of its own.

    `layout` are the live tensors of the last copy. They say only how each tensor is divided among the ranks: their
    values go on changing.
    """

    def __init__(self) -> None:
        self.layout: dict[str, Tensor] = {}
        self.parts: dict[str, Tensor] = {}

    @property
    def size(self) -> int:
        """Bytes of the buffers."""
        return sum(part.nbytes for part in self.parts.values())

    def take(self, tensors: Mapping[str, Tensor]) -> float:
        """Copies this rank's part of `tensors`; returns the seconds that it took.

        Buffers whose tensor is gone or has another form are dropped before new ones are made.
        """
        started = time.perf_counter()
        parts = {name: local_part(tensor) for name, tensor in tensors.items()}
        self.parts = {name: kept for name, kept in self.parts.items() if name in parts and _fits(kept, parts[name])}
        on_device = False
        for name, part in parts.items():
            buffer = self.parts.get(name)
            if buffer is None:
                buffer = torch.empty(part.shape, dtype=part.dtype, pin_memory=part.is_cuda)
                self.parts[name] = buffer
            buffer.copy_(part, non_blocking=part.is_cuda)
            on_device |= part.is_cuda
        if on_device:
            torch.cuda.synchronize()
        self.layout = dict(tensors)
        return time.perf_counter() - started

    def give_back(self) -> None:
        """Copies the buffers into the tensors that they came from."""
        with torch.no_grad():
            for name, tensor in self.layout.items():
                local_part(tensor).copy_(self.parts[name])

    def digests(self) -> dict[str, str]:
        """sha256 of the bytes of each part."""
        return digests_of(self.parts)


class CopySavePlanner(DefaultSavePlanner):
    """Plans by the layout of the live tensors, and writes the copy."""

    def __init__(self, copy: HostCopy) -> None:
        super().__init__()
        self._copy = copy

    def lookup_object(self, index: MetadataIndex) -> Any:
        """This rank's part of a tensor: each rank holds one piece of each."""
        return self._copy.parts[index.fqn]


class CopyLoadPlanner(DefaultLoadPlanner):
    """Plans by the layout of the live tensors, and reads into the copy."""

    def __init__(self, copy: HostCopy) -> None:
        super().__init__()
        self._copy = copy

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        """This rank's part of a tensor."""
        return self._copy.parts[index.fqn]


def digests_of(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """sha256 of what this rank holds of each tensor."""
    found = {}
    for name, tensor in tensors.items():
        part = local_part(tensor).cpu().contiguous().reshape(-1)
        found[name] = hashlib.sha256(part.view(torch.uint8).numpy().data if part.numel() else b"").hexdigest()
    return found


def _fits(buffer: Tensor, part: Tensor) -> bool:
    return buffer.shape == part.shape and buffer.dtype == part.dtype and buffer.is_pinned() == part.is_cuda
