"""Lets an optimizer of torch keep its state in host memory and step through its parameters bucket by bucket.

The optimizers of this project do so themselves (`marin.optim.access`). FSDP's own offloading is another thing: it moves
weights and gradients too and updates them on the host, where orthogonalising matrices would take minutes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from marin.optim.access import resting_zeros
from marin.parallel.parts import local_of

BUCKET_BYTES = 2**28
"""State that is on the device at a time; a parameter with more is a bucket of its own."""


class Streamed(Optimizer):
    """Another optimizer, elementwise by parameter, with its state at rest on the host.

    Groups and state are those of `inner`, so schedules and checkpoints need not know. A step on the device is the
    inner optimizer's on some of the parameters at a time: the same numbers bit for bit.
    """

    def __init__(self, inner: Optimizer, *, bucket_bytes: int = BUCKET_BYTES) -> None:
        super().__init__(inner.param_groups, inner.defaults)
        self.inner = inner
        self.state = inner.state
        self.param_groups = inner.param_groups
        self.bucket_bytes = bucket_bytes
        self.found_inf: Tensor | None = None
        self.grad_scale: Tensor | None = None

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # returns no loss
        """One step of the inner optimizer for every parameter that has a gradient."""
        if closure is not None:
            raise ValueError("closure is given; this optimizer steps on gradients that are there")
        vars(self.inner).update(found_inf=self.found_inf, grad_scale=self.grad_scale)
        whole = [group["params"] for group in self.param_groups]
        for bucket in self._buckets():
            resting = {parameter: self._fetch(parameter) for parameter in bucket}
            for group, parameters in zip(self.param_groups, whole, strict=True):
                group["params"] = [parameter for parameter in parameters if parameter in resting]
            try:
                self.inner.step()
            finally:
                for group, parameters in zip(self.param_groups, whole, strict=True):
                    group["params"] = parameters
                for parameter, stored in resting.items():
                    self._put_back(parameter, stored)
        if torch.cuda.is_available():
            # A checkpoint reads the host's copies without asking the device.
            torch.cuda.current_stream().synchronize()

    def _buckets(self) -> list[list[Tensor]]:
        buckets: list[list[Tensor]] = []
        size = 0
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                local = local_of(parameter)
                bytes_ = 2 * local.numel() * local.element_size()
                if not buckets or size + bytes_ > self.bucket_bytes:
                    buckets.append([])
                    size = 0
                buckets[-1].append(parameter)
                size += bytes_
        return buckets

    def _fetch(self, parameter: Tensor) -> dict[str, Any]:
        """Put a parameter's state on its device for a step; returns what rests on the host."""
        resting: dict[str, Any] = self.state.get(parameter, {})
        device = local_of(parameter).device
        if resting:
            self.state[parameter] = {name: value.to(device, non_blocking=True) for name, value in resting.items()}
        return resting

    def _put_back(self, parameter: Tensor, resting: dict[str, Any]) -> None:
        visiting = self.state[parameter]
        for name, value in visiting.items():
            if name not in resting:
                resting[name] = resting_zeros(value)
            local_of(resting[name]).copy_(local_of(value), non_blocking=True)
        self.state[parameter] = resting
