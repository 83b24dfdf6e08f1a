"""Parameters, FLOPs and budgets as closed formulas of the shape. Imports nothing heavy."""

from __future__ import annotations

from marin.model.config import ModelConfig

TOKENS_PER_ACTIVE_PARAMETER = 791
"""The ladder's data budget: training tokens for each active parameter."""

BUDGET_SEQUENCE_LENGTH = 4096
"""Tokens of a sequence in the published budget formula."""


def total_parameters(model: ModelConfig) -> int:
    """Every stored weight, the router biases included."""
    d, heads, on = model.width, model.heads * model.head_dim, model.features
    kv = model.kv_heads * model.head_dim
    norm = d + 2 * d * model.gate_rank * on.gated_norm
    attention = 2 * d * heads + 2 * d * kv + d * model.heads * on.head_gate + 2 * model.head_dim * on.query_key_gain
    convolutions = model.conv_taps * (kv + 2 * d) * on.short_convolution
    router = d * model.experts + model.experts
    latent = (2 * d * model.latent_width + model.latent_width) * on.latent_projection
    routed = 3 * model.experts * model.latent_width * model.expert_width
    shared = 3 * model.shared_experts * d * model.shared_width
    block = attention + convolutions + 2 * norm + router + latent + routed + shared
    return (2 - model.tied_head) * model.vocab_size * d + (1 + on.embedding_norm) * norm + model.layers * block


def active_parameters(model: ModelConfig) -> int:
    """Weights that a token multiplies with, as the public budget formula counts them (no embedding, head or gates)."""
    d = model.width
    attention = 2 * d * model.heads * model.head_dim + 2 * d * model.kv_heads * model.head_dim
    routed = 3 * model.experts_per_token * model.latent_width * model.expert_width
    latent = 2 * d * model.latent_width * model.features.latent_projection
    shared = 3 * model.shared_experts * d * model.shared_width
    return model.layers * (attention + d * model.experts + routed + latent + shared)


def flops_per_token(model: ModelConfig) -> int:
    """FLOPs of forward and backward for one token, attention included, without the causal halving."""
    context = sum(model.sequence_length if model.is_global(layer) else model.window for layer in range(model.layers))
    matrices = active_parameters(model) + model.vocab_size * model.width
    return 6 * matrices + 12 * model.heads * model.head_dim * context


def training_tokens(model: ModelConfig) -> int:
    """Tokens of the ladder's data budget for this shape."""
    return TOKENS_PER_ACTIVE_PARAMETER * active_parameters(model)


def rung_steps(model: ModelConfig, batch: int) -> int:
    """Steps of a ladder rung with `batch` sequences of 4,096 tokens a step."""
    if batch < 1:
        raise ValueError(f"batch is {batch} sequences; give at least 1")
    return round(training_tokens(model) / (batch * BUDGET_SEQUENCE_LENGTH))
