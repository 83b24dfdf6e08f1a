"""The batch of one step: this rank's micro-batches, and what all ranks know of the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from marin.tokens.mixture.packing import Batch
from marin.tokens.mixture.prefetch import LoadFigures
from marin.training.process_group import RankContext
from marin.training.stopping import StopAgreed, told_by_all
from marin.training.throughput import peak_memory_bytes


@dataclass(frozen=True)
class GlobalBatch:
    """One step's data.

    Attributes:
        micro_batches: this rank's part, in the order in which it goes through the model.
        tokens: real tokens (those with a loss) of the whole batch.
        mixture: sequences of the whole batch by mixture component.
        stall_seconds: of the rank that waited longest for its data.
        memory_bytes: largest memory that the ranks have used so far, together.
    """

    micro_batches: tuple[Batch, ...]
    tokens: int
    mixture: dict[str, int]
    stall_seconds: float
    memory_bytes: int


def agreed_batch(
    micro_batches: Sequence[Batch],
    components: Sequence[str],
    read: LoadFigures,
    ranks: RankContext,
    stop_reason: str | None,
) -> GlobalBatch:
    """The batch as all ranks see it, by one sum over them of 64-bit counts.

    It is the border between two steps too: raises StopAgreed on every rank when a rank gives a reason to stop.
    """
    tokens, wants_stop, memory = 0, 1, 2
    first_component, first_stall = 3, 3 + len(components)
    counts = np.zeros(first_stall + ranks.world_size, dtype=np.int64)
    counts[wants_stop] = stop_reason is not None
    counts[memory] = peak_memory_bytes(ranks.device)
    counts[first_stall + ranks.rank] = round(read.stall_seconds * 1e6)
    for batch in micro_batches:
        counts[tokens] += np.count_nonzero(batch.loss_mask)
        counts[first_component:first_stall] += np.bincount(batch.components, minlength=len(components))
    summed = ranks.sum(torch.from_numpy(counts)).tolist()
    if summed[wants_stop]:
        raise StopAgreed(told_by_all(ranks, stop_reason))
    return GlobalBatch(
        micro_batches=tuple(micro_batches),
        tokens=summed[tokens],
        mixture=dict(zip(components, summed[first_component:first_stall], strict=True)),
        stall_seconds=max(summed[first_stall:]) / 1e6,
        memory_bytes=summed[memory],
    )
