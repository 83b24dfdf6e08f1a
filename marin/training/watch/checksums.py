"""Whether all ranks that hold a copy of the same numbers hold the same bits.

Copies drift when a rank miscomputes, when a collective is skipped, or when memory flips; the loss shows it late or
never. Every so many steps each rank takes a checksum of the bits of each of its parts, and the ranks compare.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.placement_types import Placement

from marin.execution import StepError
from marin.parallel.parts import local_of
from marin.training.hooks import Hook
from marin.training.watch.config import OnDifference, due

if TYPE_CHECKING:
    from marin.training.loop import TrainingLoop
    from marin.training.process_group import RankContext

CHUNK = 1 << 20
MULTIPLIER = 0x9E3779B97F4A7C15 - (1 << 64)
"""Odd, with its bits well mixed: two changes at different places do not cancel."""
SHOWN = 5
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Difference:
    """A tensor of which ranks hold unequal copies: the checksum of each of them, by rank."""

    name: str
    by_rank: Mapping[int, int]

    def __str__(self) -> str:
        groups: dict[int, list[int]] = defaultdict(list)
        for rank, checksum in self.by_rank.items():
            groups[checksum].append(rank)
        sets = sorted(groups.values(), key=len)
        return f"{self.name}: ranks {' | '.join(','.join(map(str, ranks)) for ranks in sets)} hold different bits"


class Checksums(Hook):
    """`checksums`: how many tensors were compared and how many differ. A collective on the steps that are due."""

    def __init__(self, every: int, on_difference: OnDifference) -> None:
        self.name = ""
        self._every = every
        self._on_difference = on_difference
        self._loop: TrainingLoop | None = None

    def start(self, loop: TrainingLoop) -> None:
        self._loop = loop

    def figures(self, step: int) -> Mapping[str, Any]:
        assert self._loop is not None
        if not due(self._every, step) or self._loop.ranks.world_size == 1:
            return {}
        compared, found = compare_copies(self._loop.trainee.model, self._loop.ranks)
        if found:
            told = "; ".join(map(str, found[:SHOWN])) + (
                "" if len(found) <= SHOWN else f"; and {len(found) - SHOWN} more"
            )
            text = f"after step {step} copies of the same parameter differ: {told}"
            if self._on_difference is OnDifference.STOP:
                raise StepError(
                    f"{text}. The ranks in the minority computed or received something else: take their nodes out and "
                    "go on from a checkpoint before the last equal comparison, or set "
                    "watch.checksum_difference to warn"
                )
            if not self._loop.ranks.rank:
                logger.error("%s", text)
        return {"checksums": {"compared": compared, "different": len(found)}}


def compare_copies(model: nn.Module, ranks: RankContext) -> tuple[int, list[Difference]]:
    """How many parameters and buffers several ranks hold copies of, and those whose copies differ. A collective."""
    named = [*model.named_parameters(), *((n, b) for n, b in model.named_buffers() if _is_state(model, n))]
    own = torch.tensor([[checksum(local_of(tensor)), _part(tensor)] for _, tensor in named], dtype=torch.int64)
    everyone = [torch.empty_like(own) for _ in range(ranks.world_size)]
    dist.all_gather(everyone, own, group=ranks.group)
    compared, found = 0, []
    for index, (name, _) in enumerate(named):
        by_part: dict[int, dict[int, int]] = defaultdict(dict)
        for rank, rows in enumerate(everyone):
            digest, part = rows[index].tolist()
            by_part[part][rank] = digest
        compared += any(len(copies) > 1 for copies in by_part.values())
        found += [Difference(name, copies) for copies in by_part.values() if len(set(copies.values())) > 1]
    return compared, found


def checksum(tensor: Tensor) -> int:
    """63 bits of a tensor's bits and their places; equal for bit-equal tensors, also of NaN."""
    bits = tensor.detach().contiguous().flatten()
    bits = bits.view(INTEGERS[bits.element_size()])
    total = torch.zeros((), dtype=torch.int64, device=bits.device)
    for start in range(0, bits.numel(), CHUNK):
        part = bits[start : start + CHUNK].to(torch.int64)
        places = torch.arange(start + 1, start + 1 + part.numel(), device=bits.device)
        mixed = (part + places) * MULTIPLIER
        total += ((mixed ^ (mixed >> 29)) * MULTIPLIER).sum()
    return int(total) >> 1


def _part(tensor: Tensor) -> int:
    """Which part of a divided tensor lies here; 0 for one that is whole."""
    if not isinstance(tensor, DTensor):
        return 0
    mesh = tensor.device_mesh
    return part_number(tensor.placements, tuple(mesh.shape), [mesh.get_local_rank(dim) for dim in range(mesh.ndim)])


def part_number(placements: Sequence[Placement], sizes: Sequence[int], coordinate: Sequence[int]) -> int:
    """The number of the part that lies at a coordinate of a mesh with these sizes; equal where the parts are copies."""
    number = 0
    for placement, size, place in zip(placements, sizes, coordinate, strict=True):
        if not placement.is_replicate():
            number = number * size + place
    return number


def _is_state(model: nn.Module, name: str) -> bool:
    """Whether a buffer is saved: counters of a running step differ by rank, and must."""
    path, _, own = name.rpartition(".")
    return own not in model.get_submodule(path)._non_persistent_buffers_set
