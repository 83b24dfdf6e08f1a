"""Proof that what a run saves can be restored, before the run depends on it.

The first rehearsal makes the whole way with the live state before the first step: a copy, a save, a restore over
tensors that were made unrecognisable, and a comparison of every digest. So keys that do not match, files that cannot
be read, optimizer state that cannot be restored and memory that does not suffice show at the start, not days later.
The second reads the first real checkpoint back into the buffers that it was written from, in the background.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from marin.checkpoint.completeness import FoundCheckpoint
from marin.checkpoint.errors import CheckpointError
from marin.checkpoint.layout import REHEARSAL
from marin.checkpoint.progress import Progress
from marin.checkpoint.staging import HostCopy, digests_of
from marin.checkpoint.store import CheckpointStore
from marin.checkpoint.tensors import (
    announce_loaded,
    create_optimizer_state,
    local_part,
    model_tensors,
    optimizer_tensors,
)

logger = logging.getLogger(__name__)

NAMED = 5
"""Tensors that an error names before it counts the rest."""


class RehearsalFailed(CheckpointError):
    """What was saved did not come back as it was; the run should not start, or not go on, without restorable state."""


def rehearse_restore(
    store: CheckpointStore, copy: HostCopy, model: nn.Module, optimizer: Optimizer, progress: Progress
) -> None:
    """Saves and restores the state of a run that has not begun; afterwards model and optimizer are as before, to the
    bit. Collective. Raises RehearsalFailed, or what the save or the restore raise.

    An optimizer without state gets for the time being what a step on zero gradients leaves. `copy` keeps its buffers
    for the saves to come. The files lie in a folder of their own, where no restore looks, and are removed.
    """
    started = time.monotonic()
    had_state = bool(optimizer.state)
    if had_state and not all(optimizer.state.get(p) for group in optimizer.param_groups for p in group["params"]):
        logger.info("no rehearsal: a part of the optimizer's state is made in the first step only")
        return
    place = store.seen_by(store.ranks, REHEARSAL)
    copy.take(model_tensors(model))
    create_optimizer_state(optimizer)
    copy.give_back()
    tensors = model_tensors(model) | optimizer_tensors(model, optimizer)
    copy.take(tensors)
    before = copy.digests()
    found = place.save(copy, progress)
    _disfigure(tensors)
    place.load(found, tensors)
    announce_loaded(model)
    _compare(store, before, digests_of(model_tensors(model) | optimizer_tensors(model, optimizer)), "initial state")
    if place.read_progress(found) != progress:
        raise RehearsalFailed("the progress of the initial state was saved, but what was read back is not equal to it")
    if not had_state:
        optimizer.state.clear()
    place.clear()
    if store.ranks.rank == 0:
        seconds = time.monotonic() - started
        logger.info("rehearsed a restore of the initial state: %.1f MB in %.2f s", found.size / 1e6, seconds)


def read_back(store: CheckpointStore, found: FoundCheckpoint, copy: HostCopy, before: Mapping[str, str]) -> None:
    """Reads a checkpoint into the copy that it was written from, and compares it with the digests of `before`, taken
    from the copy. Collective; touches no live tensor.
    """
    damaged = store.damage(found)
    if damaged is not None:
        raise RehearsalFailed(f"the {found.describe()} was just written, but {damaged}")
    _disfigure(copy.parts)
    store.load(found, copy)
    _compare(store, before, copy.digests(), found.describe())


def _compare(store: CheckpointStore, before: Mapping[str, str], after: Mapping[str, str], what: str) -> None:
    """Raises on every rank the same RehearsalFailed when a digest changed on any."""
    own = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    changed = sorted({name for of_rank in store.ranks.gather(own) for name in of_rank})
    if changed:
        more = f" and {len(changed) - NAMED} more" if len(changed) > NAMED else ""
        raise RehearsalFailed(
            f"the {what} was saved, but did not come back as it was: {', '.join(changed[:NAMED])}{more}. "
            "Do not start the run before this is understood: it could not be resumed."
        )


def _disfigure(tensors: Mapping[str, Tensor]) -> None:
    """Gives every element another value, so that one that is not restored shows."""
    with torch.no_grad():
        for tensor in tensors.values():
            part = local_part(tensor)
            if part.is_floating_point():
                part.fill_(math.nan)
            else:
                part.copy_(part.logical_not())
