"""The two-phase mixture that all scales share."""

from __future__ import annotations

from marin.tokens.mixture.config import MixtureConfig, Phase

COOLDOWN_SHARE = 0.2
MAX_EPOCHS = 8.0


def two_phases(quality_buckets: int, budget_tokens: int) -> MixtureConfig:
    """80% of the run in natural proportions, then 20% that leans towards the better buckets, at most 8 epochs.

    In the second phase bucket q counts (q + 1) times its tokens, whatever its topic. The cap is over
    `budget_tokens` for the whole run.
    """
    lean = {f"*q{quality}": quality + 1.0 for quality in range(1, quality_buckets)}
    return MixtureConfig(
        phases=(
            Phase("main", share=1 - COOLDOWN_SHARE),
            Phase("cooldown", share=COOLDOWN_SHARE, weights=lean),
        ),
        budget_tokens=budget_tokens,
        max_epochs=MAX_EPOCHS,
    )
