"""With how many workers a run can go on while some are missing, and its parallel plan for each number.

What is learned does not depend on it: the global batch stays, each rank takes a larger part of it, and sums are equal
to rounding. Imports nothing heavy.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from marin.execution import Fleet
from marin.model.config import ModelConfig
from marin.parallel.config import ParallelPlan
from marin.training.config import TrainingConfig

logger = logging.getLogger(__name__)


def plan_for(training: TrainingConfig, model: ModelConfig, world_size: int) -> TrainingConfig:
    """The run on `world_size` ranks: unchanged where its plan is for as many.

    Expert groups keep their size where they can. Replicas go first, since a shard of the same size holds as much
    memory as before; then shards, of which each rank then holds more; then expert groups. A micro-batch never gets
    larger than it is with all workers.

    Raises:
        ValueError: the global batch does not divide by `world_size`, or no plan fits the model.
    """
    plan = training.parallel
    part = training.rank_sequences(world_size)
    if world_size == plan.world_size:
        plan.check(model, world_size)
        return training
    full_part = max(1, max(training.batches.sizes) // plan.world_size)
    micro_batch = min(training.micro_batch_sequences or full_part, full_part)
    smaller = _nearest(plan, model, world_size)
    smaller.check(model, world_size)
    return replace(
        training,
        parallel=smaller,
        micro_batch_sequences=micro_batch if part > micro_batch else training.micro_batch_sequences,
    )


def _nearest(plan: ParallelPlan, model: ModelConfig, world_size: int) -> ParallelPlan:
    """The plan for another number of ranks that differs least, in the order that `plan_for` says."""
    replicas = [n for n in range(1, min(plan.dp_replicate, world_size) + 1) if world_size % n == 0]
    groups = [plan.ep] + [n for n in range(plan.ep - 1, 0, -1) if plan.ep % n == 0]
    for ep in groups:
        shards = [world_size // n for n in replicas if world_size // n % ep == 0]
        if shards and model.experts % ep == 0:
            enough = [shard for shard in shards if shard >= plan.dp_shard]
            shard = min(enough) if enough else max(shards)
            return replace(plan, dp_replicate=world_size // shard, dp_shard=shard, ep=ep)
    return replace(plan, dp_replicate=1, dp_shard=world_size, ep=1)


def sizes_for(training: TrainingConfig, model: ModelConfig, fleet: Fleet) -> tuple[int, ...]:
    """The numbers of workers with which the run can be trained on this fleet, largest first; its own number always.

    Between `fleet.elastic.min_workers` and `fleet.workers`: whole nodes, or a part of one, for which a plan exists.
    """
    least = fleet.elastic.min_workers
    found = [fleet.workers]
    for size in range(fleet.workers - 1, (least or fleet.workers) - 1, -1):
        if size > fleet.workers_per_node and size % fleet.workers_per_node:
            continue
        try:
            plan_for(training, model, size)
        except ValueError:
            continue
        found.append(size)
    if least is not None and len(found) == 1 and least < fleet.workers:
        logger.warning(
            "fleet.elastic.min_workers is %d, but no number of workers from there to %d has a plan: the global batch "
            "of %s sequences must divide by it",
            least,
            fleet.workers - 1,
            " or ".join(map(str, training.batches.sizes)),
        )
    return tuple(found)
