"""Parts of the architecture that can be switched, for ablations and for comparison with plainer models.

Imports nothing heavy. What is left out by its size is not here: shared experts, window, z-loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CombineWeights(StrEnum):
    """How the logits of a token's chosen experts become their weights, before they are scaled to their sum."""

    SIGMOID = "sigmoid"
    SOFTMAX = "softmax"
    """The weights of a softmax over all experts, taken at the chosen ones."""


@dataclass(frozen=True)
class Features:
    """The defaults are the recipe."""

    gated_norm: bool = True
    """Every RMSNorm is followed by a low-rank gate."""
    embedding_norm: bool = True
    """Embeddings are normalised before the first block."""
    short_convolution: bool = True
    """Keys, and what attention and experts add to the stream, go through a short causal convolution."""
    query_key_gain: bool = False
    """Queries and keys have a learned gain a channel after their normalisation."""
    rotary_share: float = 0.5
    """Share of a head's channels that are rotated by position, the first ones."""
    global_positions: bool = False
    """Global layers are rotated as well."""
    exclusive_attention: bool = True
    """The part of a head's output along the token's own value is taken out."""
    head_gate: bool = True
    """Each head's output is scaled by a gate."""
    latent_projection: bool = True
    """Experts work in the latent width, between a projection down and one up; otherwise in the model's width."""
    combine_weights: CombineWeights = CombineWeights.SIGMOID

    def __post_init__(self) -> None:
        if not 0 <= self.rotary_share <= 1:
            raise ValueError(
                f"features.rotary_share is {self.rotary_share}; give a share of the channels, from 0 (no position) to 1"
            )
