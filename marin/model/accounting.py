"""Parameters, FLOPs and budgets as closed formulas of the shape. Imports nothing heavy."""

from __future__ import annotations

from marin.model.config import ModelConfig

TOKENS_PER_ACTIVE_PARAMETER = 791
"""The ladder's data budget: training tokens for each active parameter."""

BUDGET_SEQUENCE_LENGTH = 4096
"""Tokens of a sequence in the published budget formula."""


def total_parameters(model: ModelConfig) -> int:
    """Every stored weight, the router biases included."""
    d, heads = model.width, model.heads * model.head_dim
    kv = model.kv_heads * model.head_dim
    gated_norm = d + 2 * d * model.gate_rank
    attention = 2 * d * heads + 2 * d * kv + d * model.heads
    convolutions = model.conv_taps * (kv + 2 * d)
    router = d * model.experts + model.experts
    latent = 2 * d * model.latent_width + model.latent_width
    routed = 3 * model.experts * model.latent_width * model.expert_width
    shared = 3 * model.shared_experts * d * model.shared_width
    block = attention + convolutions + 2 * gated_norm + router + latent + routed + shared
    return 2 * model.vocab_size * d + 2 * gated_norm + model.layers * block


def active_parameters(model: ModelConfig) -> int:
    """Weights that a token multiplies with, as the public budget formula counts them (no embedding, head or gates)."""
    d = model.width
    attention = 2 * d * model.heads * model.head_dim + 2 * d * model.kv_heads * model.head_dim
    routed = 3 * model.experts_per_token * model.latent_width * model.expert_width
    latent = 2 * d * model.latent_width
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
