"""How a model is spread over ranks: one validated, serialisable plan. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import product

from marin.model.config import ModelConfig

HELD_GRADIENTS = 8
"""Gradients of whole units are held between micro-batches while the card has this many times their bytes."""


class Precision(StrEnum):
    """Type that matrices are multiplied in; weights, gains, router, statistics and loss are at least fp32 always."""

    AUTO = "auto"
    """bf16 on CUDA cards that have it, fp32 elsewhere."""
    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    """For cards without bf16; its range is small, so the loss must be scaled."""


class Recompute(StrEnum):
    """Which activations are made again in the backward pass. The expert exchange never happens again."""

    NONE = "none"
    SELECTIVE = "selective"
    """The input of every block, and what attention needs for its own backward pass, are kept; with ep > 1 also the rows
    that the exchange brought.
    """
    FULL = "full"
    """The input of every block is kept; with ep > 1 also the rows that the exchange brought."""


@dataclass(frozen=True)
class OverlapConfig:
    """What waits for what within a step; never changes what is computed beyond rounding."""

    prefetch_blocks: int = 1
    """CUDA: blocks whose parameters are gathered ahead of the one that is computed, in both passes."""
    shared_experts: bool = True
    """CUDA: shared experts are computed on a stream of their own while tokens travel to the routed ones."""
    reduce_every_micro_batch: bool | None = None
    """Sum gradients over the ranks after every micro-batch and not only after the last: more traffic, but no rank
    holds the gradients of whole units between two micro-batches. Null: when those would take more than an eighth of the
    card.
    """

    def reduces_every(self, whole_gradients: int, card_bytes: int | None) -> bool:
        """Whether gradients are summed after every micro-batch, when those of whole units take so many bytes and the
        card has so many (None for host memory).
        """
        if self.reduce_every_micro_batch is not None:
            return self.reduce_every_micro_batch
        return card_bytes is not None and whole_gradients * HELD_GRADIENTS > card_bytes

    def __post_init__(self) -> None:
        if self.prefetch_blocks < 0:
            raise ValueError(f"overlap.prefetch_blocks is {self.prefetch_blocks}; give 0 to gather nothing ahead")


@dataclass(frozen=True)
class ParallelPlan:
    """Sizes of the parallel dimensions.

    World = dp_replicate · dp_shard · pp · tp · cp. Everything but the routed experts is sharded over dp_shard and
    replicated over dp_replicate; the ranks of dp_shard are also (efsdp, ep): experts are divided over ep and their
    parameters sharded over efsdp = dp_shard / ep.
    """

    dp_replicate: int = 1
    dp_shard: int = 1
    ep: int = 1
    pp: int = 1
    tp: int = 1
    cp: int = 1

    def __post_init__(self) -> None:
        for name, size in asdict(self).items():
            if size < 1:
                raise ValueError(f"{name} is {size}; a parallel dimension has size 1 or more")
        for name in ("pp", "tp", "cp"):
            if getattr(self, name) != 1:
                raise ValueError(f"{name} is {getattr(self, name)}; only 1 is supported for pp, tp and cp")
        if self.dp_shard % self.ep:
            fitting = [n for n in range(1, self.dp_shard + 1) if self.dp_shard % n == 0]
            nearest = sorted(fitting, key=lambda n: abs(n - self.ep))[:3]
            raise ValueError(
                f"ep is {self.ep} and dp_shard is {self.dp_shard}: ep must divide dp_shard, because expert groups are "
                f"made of its ranks; nearest that fit: {', '.join(f'ep {n}' for n in sorted(nearest))}"
            )

    @property
    def world_size(self) -> int:
        """Ranks that the plan takes."""
        return self.dp_replicate * self.dp_shard * self.pp * self.tp * self.cp

    @property
    def data_ranks(self) -> int:
        """Ranks that read different sequences."""
        return self.dp_replicate * self.dp_shard

    @property
    def efsdp(self) -> int:
        """Ranks that share the parameters of one expert."""
        return self.dp_shard // self.ep

    def check(self, model: ModelConfig, world_size: int) -> None:
        """Raise ValueError, with the broken rule and the nearest plans that fit, if `model` cannot run so."""
        broken = None
        if self.world_size != world_size:
            broken = (
                f"dp_replicate {self.dp_replicate} · dp_shard {self.dp_shard} · pp {self.pp} · tp {self.tp} · cp "
                f"{self.cp} = {self.world_size} ranks, but the fleet has {world_size}"
            )
        elif model.experts % self.ep:
            broken = f"ep {self.ep} does not divide the model's {model.experts} experts"
        if broken is None:
            return
        plans = nearest_plans(self, model, world_size)
        raise ValueError(f"parallel plan: {broken}; nearest that fit: {'; '.join(map(str, plans))}")

    def __str__(self) -> str:
        return f"dp_replicate {self.dp_replicate}, dp_shard {self.dp_shard}, ep {self.ep}"


def nearest_plans(plan: ParallelPlan, model: ModelConfig, world_size: int, count: int = 3) -> list[ParallelPlan]:
    """The `count` plans for `world_size` ranks that fit `model` and differ least from `plan`."""
    if world_size < 1:
        raise ValueError(f"world_size is {world_size}; a fleet has at least one rank")
    divisors = [n for n in range(1, world_size + 1) if world_size % n == 0]
    fitting = [
        ParallelPlan(dp_replicate=world_size // shard, dp_shard=shard, ep=ep)
        for shard, ep in product(divisors, divisors)
        if shard % ep == 0 and model.experts % ep == 0
    ]

    def distance(other: ParallelPlan) -> tuple[float, int]:
        ratios = [
            max(a, b) / min(a, b)
            for a, b in (
                (other.ep, plan.ep),
                (other.dp_replicate, plan.dp_replicate),
                (other.dp_shard, plan.dp_shard),
            )
        ]
        return (ratios[0] * ratios[1] * ratios[2], other.dp_replicate)

    return sorted(fitting, key=distance)[:count]
