"""How an optimizer reads and writes its tensors: state that may lie on the host, and steps that may not count."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from marin.parallel.parts import local_of


@dataclass(frozen=True)
class Access:
    """Reads and writes for one step. Writes change nothing where `skip` is true, and no host waits to learn it."""

    skip: Tensor | None = None
    """0-d and boolean, on the device of the weights; None when the step counts for certain."""

    def read(self, stored: Tensor, device: torch.device) -> Tensor:
        """A stored tensor on `device`: itself, or a copy on its way from the host."""
        return stored if stored.device == device else stored.to(device, non_blocking=True)

    def write(self, stored: Tensor, value: Tensor) -> None:
        """Replace a stored tensor's values, unless the step is skipped."""
        if self.skip is not None:
            value = torch.where(self.skip, self.read(stored, value.device), value)
        stored.copy_(value, non_blocking=True)


class RuleOptimizer(Optimizer, ABC):
    """An optimizer of this project. Every parameter has a gradient on all ranks, or on none.

    `found_inf`, when set, is a 0-d tensor on the device that is not zero when the next step must change nothing (the
    name by which torch's fused optimizers take it): the step is computed and not written, so that no host waits.
    With `on_host` the state rests in host memory (pinned beside CUDA) and visits the device piece by piece.
    """

    found_inf: Tensor | None = None

    def __init__(self, groups: list[dict[str, Any]], *, on_host: bool = False) -> None:
        super().__init__(groups, {"lr": 0.0, "weight_decay": 0.0})
        self.on_host = on_host

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # returns no loss
        """Update every parameter that has a gradient. A collective when parameters are divided."""
        if closure is not None:
            raise ValueError("closure is given; this optimizer steps on gradients that are there")
        access = Access(None if self.found_inf is None else self.found_inf != 0)
        for group in self.param_groups:
            present = [parameter for parameter in group["params"] if parameter.grad is not None]
            if present:
                self.update(present, group, access)
        if self.on_host and torch.cuda.is_available():
            # A checkpoint reads the host's copies without asking the device.
            torch.cuda.current_stream().synchronize()

    @abstractmethod
    def update(self, parameters: list[Tensor], group: dict[str, Any], access: Access) -> None:
        """One step for the parameters of a group that have a gradient."""

    def zeros(self, like: Tensor) -> Tensor:
        """State for a parameter, divided as it is, where state rests."""
        return resting_zeros(like) if self.on_host else torch.zeros_like(like)

    def count(self, parameter: Tensor, access: Access) -> Tensor:
        """The number of this step for a parameter, 0-d float64 on its device; the state `step` becomes it."""
        state = self.state[parameter]
        counted = state["step"] + 1
        access.write(state["step"], counted)
        number: Tensor = counted.double()
        return number


def resting_zeros(like: Tensor) -> Tensor:
    """Zeros in host memory, divided as `like` is; pinned when `like` is on CUDA, so that copies need no host."""
    return torch.zeros_like(like, device="cpu", pin_memory=like.device.type == "cuda")


def gradient_of(parameter: Tensor) -> Tensor:
    """This rank's part of a parameter's gradient."""
    assert parameter.grad is not None
    return local_of(parameter.grad)
