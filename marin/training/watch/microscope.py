"""Looks at every module of one step: where values stop being finite, forwards and backwards."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from marin.parallel.parts import local_of
from marin.training.watch.activations import ActivationMeter, Range, tensors_of

if TYPE_CHECKING:
    from marin.training.process_group import RankContext

WHOLE_MODEL = "the loss"


@dataclass(frozen=True)
class Findings:
    """Where values stopped being finite in one step; names of modules, or None where all are finite.

    Attributes:
        module: the first module, in the order of the forward pass on any rank, with an output that is not finite.
        gradient: the first module, in the order of the backward pass, whose output's gradient is not finite.
        ranks: those whose own forward or backward pass had such a value.
        activations: range of every module's output, over all ranks.
        largest_gradients: largest size of each parameter's gradient, over all ranks; infinite where not finite.
    """

    module: str | None
    gradient: str | None
    ranks: tuple[int, ...]
    activations: Mapping[str, Range]
    largest_gradients: Mapping[str, float]

    def __str__(self) -> str:
        if self.module is not None:
            return f"the first module with an output that is not finite is {self.module}"
        if self.gradient is not None:
            return f"all outputs are finite; the first gradient that is not is that of {self.gradient}"
        bad = [name for name, size in self.largest_gradients.items() if not math.isfinite(size)]
        if bad:
            return f"all outputs are finite; the gradient of {bad[0]} is not"
        return "all outputs and gradients are finite"

    def as_json(self) -> dict[str, Any]:
        """Plain data; numbers that are not finite are null."""
        return {
            "first_module": self.module,
            "first_gradient": self.gradient,
            "ranks": list(self.ranks),
            "activations": {
                name: {"lowest": _json(r.lowest), "highest": _json(r.highest), "rms": _json(r.rms), "finite": r.finite}
                for name, r in self.activations.items()
            },
            "largest_gradients": {name: _json(size) for name, size in self.largest_gradients.items()},
        }


class Microscope:
    """Measures every module's output and its gradient between `attach` and `findings`."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        # Dropout makes no value of its own, and acts at several places of a block under one name.
        modules = {
            name or WHOLE_MODEL: module for name, module in model.named_modules() if not isinstance(module, nn.Dropout)
        }
        self._meter = ActivationMeter(modules)
        self._modules = modules
        self._gradients: dict[str, Tensor] = {}
        self._handles: list[Any] = []

    def attach(self) -> None:
        """Begin to measure, with nothing seen."""
        self.detach()
        self._gradients.clear()
        self._meter.attach()
        self._handles = [module.register_forward_hook(self._hook(name)) for name, module in self._modules.items()]

    def detach(self) -> None:
        """Measure no more."""
        self._meter.detach()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def findings(self, ranks: RankContext) -> Findings:
        """What was seen; the gradients of the parameters must still be there. A collective."""
        self.detach()
        finite = self._meter.local()[:, 2].isfinite()
        bad: set[str | None] = {
            name for name, good in zip(self._meter.modules, finite.tolist(), strict=True) if not good
        }
        module = _first(self._meter.order, bad)
        unfit: set[str | None] = {name for name, good in self._gradients.items() if not bool(good)}
        gradient = _first(list(self._gradients), unfit)
        by_rank = ranks.ranks.gather((module, gradient))
        modules, of_gradients = zip(*by_rank, strict=True)
        return Findings(
            module=_first(self._meter.order, set(modules)),
            gradient=_first(list(self._gradients), set(of_gradients)),
            ranks=tuple(rank for rank, found in enumerate(by_rank) if found != (None, None)),
            activations=self._meter.ranges(ranks),
            largest_gradients=largest_gradients(self._model, ranks),
        )

    def _hook(self, name: str) -> Callable[[nn.Module, Any, Any], None]:
        def note(gradient: Tensor) -> None:
            good = gradient.isfinite().all()
            before = self._gradients.get(name)
            self._gradients[name] = good if before is None else before & good

        def look(module: nn.Module, given: Any, output: Any) -> None:
            for tensor in tensors_of(output):
                if tensor.requires_grad:
                    tensor.register_hook(note)  # type: ignore[no-untyped-call]  # torch leaves it untyped

        return look


def largest_gradients(model: nn.Module, ranks: RankContext) -> dict[str, float]:
    """Largest size of a gradient of each parameter over all ranks; a collective. Infinite where it is not finite."""
    named = [(name, parameter.grad) for name, parameter in model.named_parameters()]
    sizes = [
        local_of(gradient).abs().amax().double() if gradient is not None and local_of(gradient).numel() else None
        for _, gradient in named
    ]
    largest = torch.tensor([0.0 if size is None else float(size) for size in sizes], dtype=torch.float64)
    largest = largest.nan_to_num(nan=torch.inf)
    if ranks.world_size > 1:
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=ranks.group)
    return dict(zip((name for name, _ in named), largest.tolist(), strict=True))


def _json(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _first(order: list[str], chosen: set[str | None]) -> str | None:
    """The first of the chosen ones; ranks run the same modules in the same order."""
    return next((name for name in order if name in chosen), None)
