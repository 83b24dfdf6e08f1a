"""Makes optimizers from their configuration and lets a schedule drive them."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from marin.model.parameters import Role, matrices_per_row, role_of
from marin.model.transformer import Transformer
from marin.optim.adafactor import Adafactor
from marin.optim.config import OptimizerConfig, OptimizerKind
from marin.optim.host_state import Streamed
from marin.optim.lion import Lion
from marin.optim.three_groups import ThreeGroups
from marin.parallel.parts import local_of

logger = logging.getLogger(__name__)

FUSED_DEVICES = frozenset({"cpu", "cuda", "mps", "xpu"})
"""Where torch has a fused AdamW; elsewhere it loops over lists of tensors."""


def build_optimizer(model: Transformer, config: OptimizerConfig, *, on_host: bool = False) -> Optimizer:
    """The optimizer of `config` over the model's parameters, plain or divided over ranks.

    Its groups have a `name` and remember their peak rate and decay for `apply_schedule`. With `on_host` its state
    rests in host memory. Every kind takes a `found_inf` (see `marin.optim.guard.step_unless`).
    """
    if config.kind is OptimizerKind.MUONH:
        return _three_groups(model, config, on_host)
    groups = _decayed_and_plain(model, config)
    if config.kind is OptimizerKind.ADAFACTOR:
        return Adafactor(groups, on_host=on_host)
    if config.kind is OptimizerKind.LION:
        return Lion(groups, on_host=on_host)
    adamw = _adamw(groups, config)
    return Streamed(adamw) if on_host else adamw


def apply_schedule(optimizer: Optimizer, share: float, remaining: float = 1.0) -> None:
    """Set every group's learning rate to `share` of its peak, and annealed decays to `remaining` (share of the run)."""
    for group in optimizer.param_groups:
        group["lr"] = group["peak_lr"] * share
        if "peak_decay" in group:
            group["weight_decay"] = group["peak_decay"] * remaining


def _decayed_and_plain(model: Transformer, config: OptimizerConfig) -> list[dict[str, Any]]:
    """Two groups: matrices that mix channels are decayed, all else is not."""
    decayed: list[Tensor] = []
    others: list[Tensor] = []
    for name, parameter in model.named_parameters():
        mixes = role_of(name, model.config) in (Role.MATRIX, Role.HEAD) or name.endswith("router.weight")
        (decayed if mixes else others).append(parameter)
    shared = {"betas": (config.beta1, config.beta2), "lr": config.learning_rate, "peak_lr": config.learning_rate}
    return [
        {"name": "decayed", "params": decayed, "weight_decay": config.weight_decay, **shared},
        {"name": "plain", "params": others, "weight_decay": 0.0, **shared},
    ]


def _adamw(groups: list[dict[str, Any]], config: OptimizerConfig) -> torch.optim.AdamW:
    device = local_of(next(parameter for group in groups for parameter in group["params"])).device.type
    fused = device in FUSED_DEVICES
    logger.info("adamw: %s (%s)", "fused" if fused else "foreach", f"on {device}")
    how = {"fused": True} if fused else {"foreach": True}
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(config.beta1, config.beta2), eps=config.eps, **how)


def _three_groups(model: Transformer, config: OptimizerConfig, on_host: bool) -> Optimizer:
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
        named = [(name, p) for name, p in model.named_parameters() if role_of(name, model.config) is role]
        group["params"] = [p for _, p in named]
        group["lr"] = group["peak_lr"]
        groups.append(group)
    matrices: dict[Tensor, int] = {p: matrices_per_row(name, model.config) for name, p in model.named_parameters()}
    return ThreeGroups(groups, matrices, on_host=on_host)
