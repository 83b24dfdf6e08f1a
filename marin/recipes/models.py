"""The models of the scales and of the published ladder, and what they cost."""

from __future__ import annotations

from marin.execution import Fleet
from marin.model.accounting import active_parameters, flops_per_token, rung_steps, total_parameters
from marin.model.config import ModelConfig
from marin.recipes.registry import scale_named, scale_names
from marin.training.config import TrainingConfig

LADDER_BATCH = {"d768": 1_024, "d1024": 2_048, "d1536": 6_144, "d2048": 11_264, "hero": 11_264}
"""Sequences of 4,096 tokens in a step of each published rung."""


def model_names() -> tuple[str, ...]:
    """Scales, and the rungs below the hero."""
    return (*scale_names(), *(rung for rung in LADDER_BATCH if rung not in scale_names()))


def model_and_training(name: str) -> tuple[ModelConfig, TrainingConfig, Fleet]:
    """A scale's model, training and fleet; for a rung that is no scale, its model with those of the node."""
    scale = scale_named(name if name in scale_names() else "node")
    return (scale.model if name in scale_names() else ModelConfig.rung(name)), scale.training, scale.fleet


def model_summary(name: str) -> dict[str, int]:
    """Parameters, FLOPs per token (forward and backward) and steps of a scale's or a rung's model."""
    if name in LADDER_BATCH:
        model = ModelConfig.rung(name)
        steps = rung_steps(model, LADDER_BATCH[name])
    else:
        scale = scale_named(name)
        model, steps = scale.model, scale.training.steps
    return {
        "total_parameters": total_parameters(model),
        "active_parameters": active_parameters(model),
        "flops_per_token": flops_per_token(model),
        "steps": steps,
    }
