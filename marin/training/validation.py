"""The held-out loss and bits per byte: dropless, weighted by tokens, the same for any number of ranks.

Measured on the held-out sources, and on the components of the mixture that it never draws. The run's one validation
loss is that of the held-out sources together.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import nn

from marin.evaluation.artifacts import SourceScore
from marin.evaluation.heldout import compression, overall
from marin.tokens.mixture.artifacts import Mixture
from marin.tokens.mixture.loader import Batch, packed_batches
from marin.tokens.shards.artifacts import TokenShards
from marin.training.process_group import RankContext
from marin.training.tensors import on_device

logger = logging.getLogger(__name__)

FROM_MIXTURE = "mixture/"
"""Before the name of a component of the mixture among the sources."""


@dataclass(frozen=True)
class HeldOutText:
    """One source that a run is measured on.

    Attributes:
        batches: (size, sequences) -> its first `sequences` sequences in order, in batches of `size` or fewer.
        tokens: tokens of the whole source.
        text_bytes: UTF-8 bytes of its text.
        bos_id: id that each document begins with, or None.
        in_loss: whether it is part of the run's one validation loss.
    """

    batches: Callable[[int, int], Iterator[Batch]]
    tokens: int
    text_bytes: int
    bos_id: int | None = None
    in_loss: bool = True


HeldOut = Mapping[str, HeldOutText]
"""By source."""


@dataclass(frozen=True)
class SourceLoss:
    """Sums over the real tokens of one held-out source, and what they come to in bits per byte."""

    nll: float
    tokens: int
    target_counts: np.ndarray[Any, np.dtype[np.int64]]
    """How often each id was a target: what a unigram model is scored on."""
    score: SourceScore | None = None
    """Compression as the evaluation of a checkpoint counts it; None when no token has a loss. Where only a part of the
    source is read, its bytes are taken to be in proportion to its tokens.
    """
    in_loss: bool = True

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
                source: _source_loss(model, source, text, text.batches(batch, sequences), ranks, vocab_size, at_border)
                for source, text in heldout.items()
            }
    finally:
        model.train(was_training)


def summarise(losses: Mapping[str, SourceLoss], step: int, started: float) -> dict[str, Any]:
    """A validation as JSON: the loss over all tokens of the held-out sources, and every source by itself.

    A source without a token that has a loss has none of its own. A figure that is not finite is None.
    """
    counted = [loss for loss in losses.values() if loss.in_loss]
    tokens = sum(loss.tokens for loss in counted)
    scores = {source: loss.score for source, loss in losses.items() if loss.score is not None}
    return {
        "step": step,
        "time": time.time(),
        "loss": finite(sum(loss.nll for loss in counted) / tokens) if tokens else None,
        "tokens": tokens,
        "bits_per_byte": finite(overall(loss.score for loss in counted if loss.score is not None)),
        "losses": {source: finite(loss.loss) for source, loss in losses.items() if loss.tokens},
        "source_tokens": {source: loss.tokens for source, loss in losses.items()},
        "source_bits_per_byte": {source: finite(score.bits_per_byte) for source, score in scores.items()},
        "seconds": time.perf_counter() - started,
    }


def finite(value: float | None) -> float | None:
    """The value, or None for one that JSON cannot hold."""
    return value if value is not None and math.isfinite(value) else None


def heldout_texts(heldout: Mapping[str, TokenShards], mixture: Mixture, sequence_length: int) -> dict[str, HeldOutText]:
    """What a run is measured on, by name: the held-out sources, then the mixture's components of weight zero."""
    texts = {source: _text_of(shards, sequence_length) for source, shards in sorted(heldout.items())}
    for name in mixture.validation:
        texts[FROM_MIXTURE + name] = replace(_text_of(mixture.components[name], sequence_length), in_loss=False)
    return texts


def _text_of(shards: TokenShards, sequence_length: int) -> HeldOutText:
    return HeldOutText(
        partial(packed_batches, shards, sequence_length), shards.tokens, shards.text_bytes, shards.bos_id
    )


def _source_loss(
    model: nn.Module,
    source: str,
    text: HeldOutText,
    batches: Iterator[Batch],
    ranks: RankContext,
    vocab_size: int,
    at_border: Callable[[], None],
) -> SourceLoss:
    sums = torch.zeros(2, dtype=torch.float64, device=ranks.device)
    counts = np.zeros(vocab_size, dtype=np.int64)
    read = 0
    while round_ := list(islice(batches, ranks.world_size)):
        at_border()
        read += sum(batch.targets.size for batch in round_)
        idle = ranks.rank >= len(round_)
        own = _emptied(round_[0]) if idle else round_[ranks.rank]
        result = model(*on_device(own, ranks.device))
        sums += torch.stack([result.nll_sum.double(), result.token_count.double()])
        counts += np.bincount(own.targets[own.loss_mask], minlength=vocab_size)
    ranks.sum(sums)
    ranks.sum(torch.from_numpy(counts))
    nll, tokens = float(sums[0]), int(sums[1])
    if not tokens:
        if ranks.rank == 0:
            logger.warning("the held-out source %r has no token with a loss: it is left out of the validation", source)
        return SourceLoss(nll, tokens, counts, in_loss=text.in_loss)
    score = compression(
        source,
        nll,
        tokens,
        read,
        total_tokens=text.tokens,
        total_bytes=text.text_bytes,
        partial_bytes=round(text.text_bytes * (read + 1) / text.tokens),
        vocab_size=vocab_size,
        bos_id=text.bos_id,
    )
    return SourceLoss(nll, tokens, counts, score, text.in_loss)


def _emptied(batch: Batch) -> Batch:
    """The same sequences without a single token that counts."""
    return replace(batch, loss_mask=np.zeros_like(batch.loss_mask))
