"""The unigram baseline of a run, on the same validation tokens as the model."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING

from marin.training.unigram import unigram_log_probabilities, unigram_loss

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from marin.training.job import TrainingJob


def unigram_losses(job: TrainingJob, target_counts: Mapping[str, NDArray[np.int64]]) -> dict[str, float]:
    """Unigram loss in nats per token of each held-out source that has a real token.

    Fitted on the training shards' own counts (`counts.npy`), each component weighted by the tokens that the run uses
    of it.
    """
    import numpy as np

    counts = {name: np.load(io.BytesIO(shards.read("counts.npy"))) for name, shards in job.mixture.components.items()}
    used = tokens_used(job)
    fitted = unigram_log_probabilities(counts, used, job.model.vocab_size)
    return {source: unigram_loss(fitted, found) for source, found in target_counts.items() if found.sum()}


def tokens_used(job: TrainingJob) -> dict[str, float]:
    """Tokens of each mixture component that the whole run reads."""
    raise NotImplementedError
