"""Hooks that disturb a toy run at one step of one rank; they pickle, so a task can carry them."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import Any

from marin.training.hooks import Hook


@dataclass
class Hangs(Hook):
    """A rank that goes no further."""

    step: int
    rank: int
    loop: Any = None

    def start(self, loop: Any) -> None:
        self.loop = loop

    def before_step(self, step: int) -> None:
        if (step, self.loop.ranks.rank) == (self.step, self.rank):
            time.sleep(600)


@dataclass
class Breaks(Hook):
    """A module whose output holds an infinity on one rank, from `step` on, in every pass."""

    step: int
    rank: int
    module: str
    handles: list[Any] = field(default_factory=list)
    loop: Any = None

    def start(self, loop: Any) -> None:
        self.loop = loop

    def before_step(self, step: int) -> None:
        for handle in self.handles:
            handle.remove()
        self.handles.clear()
        if step >= self.step and self.loop.ranks.rank == self.rank:
            module = self.loop.trainee.model.get_submodule(self.module)
            self.handles.append(module.register_forward_hook(lambda module, given, output: output * float("inf")))


@dataclass
class Drifts(Hook):
    """A rank whose copy of one parameter loses a bit after a step."""

    step: int
    rank: int
    parameter: str
    loop: Any = None

    def start(self, loop: Any) -> None:
        self.loop = loop

    def after_update(self, step: int) -> None:
        import torch

        from marin.checkpoint.tensors import local_part

        if (step, self.loop.ranks.rank) == (self.step, self.rank):
            held = local_part(self.loop.trainee.model.get_parameter(self.parameter)).flatten()
            with torch.no_grad():
                held[0] = torch.nextafter(held[0], held[0] + 1)


@dataclass
class Dies(Hook):
    """A slow process that ends at once after a step, as if it were killed."""

    step: int
    pause: float

    def before_step(self, step: int) -> None:
        time.sleep(self.pause)

    def after_update(self, step: int) -> None:
        if step == self.step:
            os._exit(9)
