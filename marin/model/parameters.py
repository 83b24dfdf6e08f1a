"""What a parameter is, told from its name: which rule updates it, and how many matrices lie stacked in it."""

from __future__ import annotations

from enum import StrEnum

from marin.model.config import ModelConfig


class Role(StrEnum):
    """How a parameter acts, which decides its optimizer group."""

    MATRIX = "matrix"
    """Mixes channels inside the model."""
    HEAD = "head"
    """Output matrix over the vocabulary."""
    GATE = "gate"
    """Router weight or head gate: small matrices whose norm must be held down."""
    PLAIN = "plain"
    """Embedding, gains, convolution taps."""


def role_of(name: str, config: ModelConfig) -> Role:
    """The role of the parameter with this qualified name.

    A tied matrix is a head: it is the growth of logits that must be held down, and what an embedding adds to the stream
    is normalised, so its size has no meaning.
    """
    kind = name.rsplit(".", 1)[-1]
    if name == "head.weight" or (name == "embedding.weight" and config.tied_head):
        return Role.HEAD
    if kind == "head_gate" or name.endswith("router.weight"):
        return Role.GATE
    if kind.endswith("gain") or kind == "taps" or name == "embedding.weight":
        return Role.PLAIN
    return Role.MATRIX


def is_wide(name: str) -> bool:
    """True for a parameter that enters the forward pass in at least fp32, whatever type matrices are multiplied in:
    gains, which scale statistics of that type, and the router's weight.
    """
    return name.endswith(("gain", "router.weight"))


def matrices_per_row(name: str, config: ModelConfig) -> int:
    """Matrices that lie one below the other in a 2-D parameter, or in each expert's slice of a stack of experts."""
    if name.endswith("experts.gate_up"):
        return 2
    if name.endswith("shared.gate_up"):
        return 2 * config.shared_experts
    if name.endswith("shared.down"):
        return config.shared_experts
    return 1
