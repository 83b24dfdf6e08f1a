"""The unigram baseline of a run, on the same validation tokens as the model."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING

from marin.tokens.mixture.artifacts import Mixture
from marin.tokens.shards.artifacts import COUNTS_FILE
from marin.training.unigram import unigram_log_probabilities, unigram_loss

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def unigram_losses(
    mixture: Mixture,
    epochs: Mapping[str, float],
    target_counts: Mapping[str, NDArray[np.int64]],
    vocab_size: int,
) -> dict[str, float]:
    """Unigram loss in nats per token of each held-out source that has a real token.

    Fitted on the training shards' own counts (`counts.npy`), each component weighted by the tokens that the run reads
    of it; epochs: how often it goes through each component.
    """
    import numpy as np

    counts = {name: np.load(io.BytesIO(shards.read(COUNTS_FILE))) for name, shards in mixture.components.items()}
    used = {name: epochs[name] * shards.tokens for name, shards in mixture.components.items()}
    fitted = unigram_log_probabilities(counts, used, vocab_size)
    return {source: unigram_loss(fitted, found) for source, found in target_counts.items() if found.sum()}
