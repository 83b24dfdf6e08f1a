"""Makes optimizers from their configuration and lets a schedule drive them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from marin.model.parameters import Role, matrices_per_row, role_of
from marin.model.transformer import Transformer
from marin.optim.config import OptimizerConfig, OptimizerKind
from marin.optim.three_groups import ThreeGroups


def build_optimizer(model: Transformer, config: OptimizerConfig) -> torch.optim.Optimizer:
    """The optimizer of `config` over the model's parameters, plain or divided over ranks.

    Its groups have a `name` and remember their peak rate and decay for `apply_schedule`.
    """
    return _adamw(model, config) if config.kind is OptimizerKind.ADAMW else _three_groups(model, config)


def apply_schedule(optimizer: torch.optim.Optimizer, share: float, remaining: float = 1.0) -> None:
    """Set every group's learning rate to `share` of its peak, and annealed decays to `remaining` (share of the run)."""
    for group in optimizer.param_groups:
        group["lr"] = group["peak_lr"] * share
        if "peak_decay" in group:
            group["weight_decay"] = group["peak_decay"] * remaining


def _adamw(model: Transformer, config: OptimizerConfig) -> torch.optim.Optimizer:
    decayed: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        mixes = role_of(name) in (Role.MATRIX, Role.HEAD) or name.endswith("router.weight")
        (decayed if mixes else others).append(parameter)
    groups = [
        {"name": "decayed", "params": decayed, "weight_decay": config.weight_decay, "peak_lr": config.learning_rate},
        {"name": "plain", "params": others, "weight_decay": 0.0, "peak_lr": config.learning_rate},
    ]
    return torch.optim.AdamW(
        groups, lr=config.learning_rate, betas=(config.beta1, config.beta2), eps=config.eps, fused=True
    )


def _three_groups(model: Transformer, config: OptimizerConfig) -> torch.optim.Optimizer:
    adam = {"betas": (config.beta1, config.beta2), "eps": config.eps}
    constants: dict[Role, dict[str, Any]] = {
        Role.MATRIX: {"name": "muonh", "rule": "muonh", "momentum": config.momentum, "peak_lr": config.muonh_rate},
        Role.HEAD: {"name": "adamh", "rule": "adamh", "peak_lr": config.muonh_rate, **adam},
        Role.GATE: {
            "name": "gates",
            "rule": "adam",
            "peak_lr": config.learning_rate,
            "peak_decay": config.gate_decay,
            "weight_decay": config.gate_decay,
            **adam,
        },
        Role.PLAIN: {"name": "adam", "rule": "adam", "peak_lr": config.learning_rate, **adam},
    }
    groups = []
    for role, group in constants.items():
        named = [(name, p) for name, p in model.named_parameters() if role_of(name) is role]
        group["params"] = [p for _, p in named]
        group["lr"] = group["peak_lr"]
        groups.append(group)
    matrices = {p: matrices_per_row(name, model.config) for name, p in model.named_parameters()}
    return ThreeGroups(groups, matrices)
