"""Bytes on a rank under a plan: the real model, divided on the meta device over a process group that does nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from marin.model.config import ComputeConfig, ModelConfig
from marin.model.initialisation import is_stack
from marin.model.parameters import is_wide
from marin.model.transformer import Transformer
from marin.parallel.activations import Activations, activations
from marin.parallel.compat import fake_process_group
from marin.parallel.config import OverlapConfig, ParallelPlan, Precision, Recompute
from marin.parallel.meshes import build_meshes
from marin.parallel.parts import local_of
from marin.parallel.sharding import HALF, parallelise, whole_gradient_bytes

REDUCE_BYTES = 4
"""Gradients are summed in fp32 when matrices are multiplied in half precision."""


@dataclass(frozen=True)
class StateTensor:
    """One tensor that an optimizer keeps for a parameter: its shape beside the parameter's, and its bytes an element.

    A dimension is as long as the parameter's, or 1.
    """

    whole: tuple[bool, ...]
    itemsize: int

    def bytes_for(self, local: Sequence[int]) -> int:
        """Bytes beside a local part of the parameter; those of a part without rows are none."""
        count = 1
        for size, whole in zip(local, self.whole, strict=True):
            count *= size if whole else min(size, 1)
        return count * self.itemsize


StateOf = Callable[[str], Sequence[StateTensor]]
"""What the optimizer keeps for the parameter with this name."""


@dataclass(frozen=True)
class RankMemory:
    """Bytes on the rank that holds most. Ranks come first in every division, so that is rank 0."""

    weights: int
    gradients: int
    """Of its own part, as the optimizer reads them."""
    optimizer: int
    optimizer_on_host: int
    """In the machine's memory, for this rank."""
    buffers: int
    """Counters of the routers."""
    gathered: int
    """Parameters of whole units: the outer one, and the blocks that are computed and gathered ahead, with what the
    gathers write first.
    """
    reduced: int
    """Gradients of whole units: what is being summed, and all of them between micro-batches unless they are summed
    after each.
    """
    activations: Activations
    even_weights: float
    """Bytes of weights on a rank if they divided evenly."""

    @property
    def resident(self) -> int:
        """What is there all the time."""
        return self.weights + self.gradients + self.optimizer + self.buffers

    @property
    def peak(self) -> int:
        """The most at once, without the optimizer's temporaries, communication buffers and the allocator's gaps."""
        return self.resident + self.gathered + self.reduced + self.activations.peak


def rank_memory(
    model: ModelConfig,
    plan: ParallelPlan,
    state_of: StateOf,
    *,
    sequences: int,
    micro_batches: int = 1,
    precision: Precision = Precision.AUTO,
    recompute: Recompute = Recompute.NONE,
    overlap: OverlapConfig = OverlapConfig(),
    compute: ComputeConfig = ComputeConfig(),
    device_type: str = "cuda",
    imbalance: float = 1.0,
    state_on_host: bool = False,
    card_bytes: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> RankMemory:
    """Memory of the fullest rank with micro-batches of `sequences` sequences and weights of `dtype`.

    `imbalance` is how many times its even share of rows the busiest rank's experts get. Starts a process group of
    its own, so it cannot be asked inside a gang. Raises ValueError when the plan does not fit the model.
    """
    half = planned_dtype(precision, device_type)
    with _divided(model, plan) as divided:
        named = list(divided.named_parameters())
        weights = sum(_bytes(local_of(p).shape, dtype) for _, p in named)
        state = sum(s.bytes_for(local_of(p).shape) for name, p in named for s in state_of(name))
        # Routing state is fp32 or int64, or counts in the type of the weights.
        buffers = sum(b.numel() * b.element_size() for b in divided.buffers())
        units = _units(named, plan, dtype, half)
        held = whole_gradient_bytes(divided, plan)
    outer, blocks = units[0], units[1:]
    block = max(blocks, key=lambda unit: unit.gathered)
    ahead = min(1 + (overlap.prefetch_blocks if device_type == "cuda" else 0), len(blocks))
    working = activations(
        model,
        plan,
        sequences=sequences,
        dtype=half or dtype,
        recompute=recompute,
        device_type=device_type,
        compute=compute,
        imbalance=imbalance,
    )
    # The copies that are summed; the gradients themselves are counted with the activations.
    itemsize = max(REDUCE_BYTES, dtype.itemsize)
    # The outer unit is summed at the end, when the activations are gone.
    summing = max(block.elements * itemsize, outer.elements * itemsize - working.kept)
    if micro_batches > 1 and not overlap.reduces_every(held, card_bytes):
        summing += held
    total = sum(p.numel() for _, p in named)
    return RankMemory(
        weights=weights,
        gradients=weights,
        optimizer=0 if state_on_host else state,
        optimizer_on_host=state if state_on_host else 0,
        buffers=buffers,
        gathered=outer.gathered + ahead * block.gathered + block.travelling,
        reduced=summing,
        activations=working,
        even_weights=total * dtype.itemsize / (plan.world_size / plan.dp_replicate),
    )


def planned_dtype(precision: Precision, device_type: str) -> torch.dtype | None:
    """The type to multiply matrices in on a device that is not here: a CUDA card has bf16."""
    if precision is Precision.AUTO:
        return torch.bfloat16 if device_type == "cuda" else None
    return HALF.get(precision)


@contextmanager
def _divided(model: ModelConfig, plan: ParallelPlan) -> Iterator[Transformer]:
    plan.check(model, plan.world_size)
    if dist.is_initialized():
        raise RuntimeError("a process group runs here; ask for a plan's memory before it starts or in another process")
    fake_process_group(plan.world_size)
    try:
        with torch.device("meta"):
            divided = Transformer(model)
        yield parallelise(divided, build_meshes(plan, "cpu"), precision=Precision.FP32)
    finally:
        dist.destroy_process_group()


@dataclass(frozen=True)
class _Unit:
    """Parameters that are gathered together: elements and bytes of the whole that a rank computes with."""

    elements: int
    gathered: int
    travelling: int
    """Bytes that a gather writes before they are laid out as parameters."""


def _units(
    named: Sequence[tuple[str, Tensor]], plan: ParallelPlan, dtype: torch.dtype, half: torch.dtype | None
) -> list[_Unit]:
    """The outer unit, then the blocks."""
    found: dict[str, list[tuple[int, int, bool]]] = {"": []}
    for name, parameter in named:
        block = ".".join(name.split(".")[:2]) if name.startswith("blocks.") else ""
        elements = parameter.numel() // (plan.ep if is_stack(name) else 1)
        itemsize = dtype.itemsize if half is None or is_wide(name) else half.itemsize
        divided = (plan.efsdp if is_stack(name) else plan.dp_shard) > 1
        found.setdefault(block, []).append((elements, elements * itemsize, divided))
    return [
        _Unit(
            elements=sum(elements for elements, _, _ in members),
            gathered=sum(size for _, size, _ in members),
            travelling=sum(size for _, size, divided in members if divided),
        )
        for members in found.values()
    ]


def _bytes(shape: Sequence[int], dtype: torch.dtype) -> int:
    count = dtype.itemsize
    for size in shape:
        count *= size
    return count
