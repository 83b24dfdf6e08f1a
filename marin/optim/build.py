"""Makes optimizers from their configuration and lets a schedule drive them."""

from __future__ import annotations

import torch
from torch import nn

from marin.optim.config import OptimizerConfig

PLAIN = ("gain", "latent_gain", "taps", "head_gate")
"""Last part of the names of parameters that scale rather than mix channels."""


def is_decayed(name: str) -> bool:
    """True for matrices that mix channels; gains, taps, head gates and the embedding are not decayed."""
    return name.rsplit(".", 1)[-1] not in PLAIN and not name.startswith("embedding.")


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """AdamW over the model's parameters, plain or divided over ranks; its groups remember their peak rate."""
    decayed: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        (decayed if is_decayed(name) else others).append(parameter)
    groups = [
        {"params": decayed, "weight_decay": config.weight_decay, "peak_lr": config.learning_rate},
        {"params": others, "weight_decay": 0.0, "peak_lr": config.learning_rate},
    ]
    return torch.optim.AdamW(
        groups, lr=config.learning_rate, betas=(config.beta1, config.beta2), eps=config.eps, fused=True
    )


def apply_schedule(optimizer: torch.optim.Optimizer, share: float) -> None:
    """Set every group's learning rate to `share` of its peak."""
    for group in optimizer.param_groups:
        group["lr"] = group["peak_lr"] * share
