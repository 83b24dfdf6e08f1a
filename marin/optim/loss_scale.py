"""Dynamic loss scaling, for training in fp16: gradients are computed of a multiple of the loss, as large as fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from marin.optim.config import LossScaleConfig
from marin.parallel.parts import local_of


class LossScale:
    """The factor, on the device. It falls after a gradient that is not finite anywhere, and rises after a good while.

    `torch.amp.GradScaler` is not used: it looks at the gradients of each rank and mesh apart and waits for the host.
    """

    def __init__(self, config: LossScaleConfig, device: torch.device | str) -> None:
        self.config = config
        self._scale = torch.full((), config.initial, dtype=torch.float32, device=device)
        self._good_steps = torch.zeros((), dtype=torch.int64, device=device)

    @property
    def value(self) -> Tensor:
        """The factor, 0-d fp32; a copy."""
        return self._scale.clone()

    def scaled(self, loss: Tensor) -> Tensor:
        """What is differentiated instead of `loss`."""
        return loss * self._scale

    @torch.no_grad()
    def unscale(self, model: nn.Module) -> None:
        """Divide all gradients by the factor, once a step; a gradient that overflowed stays not finite."""
        factor = 1.0 / self._scale
        for parameter in model.parameters():
            if parameter.grad is not None:
                gradient = local_of(parameter.grad)
                gradient.mul_(factor.to(gradient.dtype))

    def can_fall(self) -> Tensor:
        """0-d, true while a smaller factor may still help."""
        return self._scale > self.config.least

    def update(self, fitted: Tensor) -> None:
        """Set the factor for the next step. `fitted` is 0-d: the gradient did not overflow, on any rank."""
        config = self.config
        good = self._good_steps + 1
        rises = good >= config.interval
        higher = (self._scale * config.growth).clamp(max=config.most)
        lower = (self._scale * config.backoff).clamp(min=config.least)
        self._scale.copy_(torch.where(fitted, torch.where(rises, higher, self._scale), lower))
        self._good_steps.copy_(torch.where(fitted & ~rises, good, 0))

    def state(self) -> dict[str, Any]:
        """What a resumed run must know, as JSON; equal on every rank."""
        return {"scale": float(self._scale), "good_steps": int(self._good_steps)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state`."""
        self._scale.fill_(state["scale"])
        self._good_steps.fill_(state["good_steps"])
