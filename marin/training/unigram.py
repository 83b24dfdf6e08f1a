"""The baseline that every language model must beat: token frequencies alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def unigram_log_probabilities(
    counts: Mapping[str, NDArray[np.int64]], used_tokens: Mapping[str, float], vocab_size: int
) -> NDArray[np.float64]:
    """Natural logs of the unigram probabilities of a training run, add-one smoothed over `vocab_size` ids.

    counts: tokens by id of each mixture component's shards; used_tokens: how many tokens of the component the run
    uses. A component's counts are scaled to its use, so that the model is fitted on what was trained on and not on
    what lies in the shards.
    """
    import numpy as np

    pooled = np.ones(vocab_size, dtype=np.float64)
    for name, of_component in counts.items():
        total = int(of_component.sum())
        if len(of_component) > vocab_size and of_component[vocab_size:].any():
            raise ValueError(f"component {name!r} has token ids beyond the vocabulary of {vocab_size}")
        if total:
            used = of_component[:vocab_size].astype(np.float64) * (used_tokens.get(name, 0.0) / total)
            pooled[: len(used)] += used
    logs: NDArray[np.float64] = np.log(pooled / pooled.sum())
    return logs


def unigram_loss(log_probabilities: NDArray[np.float64], target_counts: NDArray[np.int64]) -> float:
    """Mean negative log-likelihood in nats of tokens that are given as counts by id."""
    tokens = int(target_counts.sum())
    if tokens == 0:
        raise ValueError("there is no validation token to score")
    return float(-(target_counts * log_probabilities).sum() / tokens)
