"""The held-out loss: dropless, weighted by tokens, the same for any number of ranks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import nn

from marin.tokens.mixture.loader import Batch
from marin.training.process_group import RankContext
from marin.training.tensors import on_device

HeldOut = Mapping[str, Callable[[int, int], Iterator[Batch]]]
"""By source: (size, sequences) -> its first `sequences` sequences in order, in batches of `size` or fewer."""


@dataclass(frozen=True)
class SourceLoss:
    """Sums over the real tokens of one held-out source."""

    nll: float
    tokens: int
    target_counts: np.ndarray[Any, np.dtype[np.int64]]
    """How often each id was a target: what a unigram model is scored on."""

    @property
    def loss(self) -> float:
        """Nats per token; NaN when the source has no real token."""
        return self.nll / self.tokens if self.tokens else math.nan


def validate(
    model: nn.Module,
    heldout: HeldOut,
    ranks: RankContext,
    *,
    batch: int,
    sequences: int,
    vocab_size: int,
    at_border: Callable[[], None] = lambda: None,
) -> dict[str, SourceLoss]:
    """The loss of each source on its first `sequences` sequences, `batch` at a time; every rank gets the sums over
    all.

    Batches are dealt out to the ranks in turn. A rank that has none left goes through the model with an empty copy,
    since the exchange of experts needs every rank. Before each round every rank calls `at_border`, which may raise.
    """
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return {
                source: _source_loss(model, batches(batch, sequences), ranks, vocab_size, at_border)
                for source, batches in heldout.items()
            }
    finally:
        model.train(was_training)


def summarise(losses: Mapping[str, SourceLoss], step: int, started: float) -> dict[str, Any]:
    """A validation as JSON: the loss over all tokens and by source."""
    tokens = sum(loss.tokens for loss in losses.values())
    return {
        "step": step,
        "time": time.time(),
        "loss": sum(loss.nll for loss in losses.values()) / tokens if tokens else None,
        "tokens": tokens,
        "losses": {source: loss.loss for source, loss in losses.items() if loss.tokens},
        "source_tokens": {source: loss.tokens for source, loss in losses.items()},
        "seconds": time.perf_counter() - started,
    }


def _source_loss(
    model: nn.Module,
    batches: Iterator[Batch],
    ranks: RankContext,
    vocab_size: int,
    at_border: Callable[[], None],
) -> SourceLoss:
    sums = torch.zeros(2, dtype=torch.float64)
    counts = np.zeros(vocab_size, dtype=np.int64)
    while round_ := list(islice(batches, ranks.world_size)):
        at_border()
        idle = ranks.rank >= len(round_)
        own = _emptied(round_[0]) if idle else round_[ranks.rank]
        result = model(*on_device(own, ranks.device))
        sums += torch.stack([result.nll_sum.double(), result.token_count.double()]).cpu()
        counts += np.bincount(own.targets[own.loss_mask], minlength=vocab_size)
    ranks.sum(sums)
    ranks.sum(torch.from_numpy(counts))
    return SourceLoss(nll=float(sums[0]), tokens=int(sums[1]), target_counts=counts)


def _emptied(batch: Batch) -> Batch:
    """The same sequences without a single token that counts."""
    return replace(batch, loss_mask=np.zeros_like(batch.loss_mask))
