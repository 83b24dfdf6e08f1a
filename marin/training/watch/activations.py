"""Ranges and norms of activations, layer by layer, on the steps that ask for them.

Forward hooks are there only while such a step runs. A module whose activations are made again in the backward pass is
seen twice: lowest, highest and the mean square are the same either way, since a repetition repeats all of a module's
output. Means are over tokens of all micro-batches and ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from marin.training.hooks import Hook
from marin.training.watch.config import due

if TYPE_CHECKING:
    from marin.training.loop import TrainingLoop
    from marin.training.process_group import RankContext

PARTS = ("", ".attention", ".moe")
"""Of each block: the stream that leaves it, and what its two halves add before their convolutions."""


@dataclass(frozen=True)
class Range:
    """One module's output over a step. `finite` is False when any value was NaN or infinite."""

    lowest: float
    highest: float
    rms: float
    finite: bool


class ActivationMeter:
    """Watches the outputs of modules between `attach` and `detach`; the numbers stay on the device until read."""

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        self.modules = dict(modules)
        self.order: list[str] = []
        """Names in the order in which the modules were first left."""
        self._sums: dict[str, Tensor] = {}
        self._handles: list[Any] = []

    def attach(self) -> None:
        """Begin to watch, with nothing seen."""
        self.detach()
        self._sums.clear()
        self.order.clear()
        for name, module in self.modules.items():
            self._handles.append(module.register_forward_hook(self._hook(name)))

    def detach(self) -> None:
        """Watch no more; what was seen stays."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def local(self) -> Tensor:
        """[modules, 4] float64 on the CPU: minus the lowest, the highest, sum of squares, count (0 if unseen)."""
        device = next((seen.device for seen in self._sums.values()), torch.device("cpu"))
        nothing = torch.tensor([-torch.inf, -torch.inf, 0.0, 0.0], dtype=torch.float64, device=device)
        return torch.stack([self._sums.get(name, nothing) for name in self.modules]).cpu()

    def ranges(self, ranks: RankContext) -> dict[str, Range]:
        """What all ranks saw together; a collective. Modules that nobody saw are left out."""
        seen = self.local()
        # NaN is no maximum for gloo: whether all is finite travels by the sum of squares.
        extremes = seen[:, :2].nan_to_num(nan=torch.inf).contiguous()
        if ranks.world_size > 1:
            dist.all_reduce(extremes, op=dist.ReduceOp.MAX, group=ranks.group)
        sums = ranks.sum(seen[:, 2:].contiguous())
        found = {}
        for name, (low, high), (square, count) in zip(self.modules, extremes.tolist(), sums.tolist(), strict=True):
            if count:
                mean = square / count
                finite = mean == mean and mean != float("inf")
                found[name] = Range(-low, high, mean**0.5 if finite else mean, finite)
        return found

    def _hook(self, name: str) -> Callable[[nn.Module, Any, Any], None]:
        def look(module: nn.Module, given: Any, output: Any) -> None:
            with torch.no_grad():
                for tensor in tensors_of(output):
                    self._add(name, tensor.detach())

        return look

    def _add(self, name: str, tensor: Tensor) -> None:
        if not tensor.is_floating_point() or not tensor.numel():
            return
        low, high = tensor.aminmax()
        square = tensor.float().square().sum(dtype=torch.float64)
        count = torch.full_like(square, tensor.numel())
        seen = torch.stack((-low.double(), high.double(), square, count))
        before = self._sums.get(name)
        if before is None:
            self.order.append(name)
        else:
            seen = torch.cat((torch.maximum(before[:2], seen[:2]), before[2:] + seen[2:]))
        self._sums[name] = seen


def tensors_of(value: Any) -> Iterator[Tensor]:
    """The tensors of a module's output, at any depth of tuples, lists and tables."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors_of(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_of(item)


class ActivationRanges(Hook):
    """`activations`: [lowest, highest, root mean square] of the stream after each block and of its halves."""

    def __init__(self, every: int) -> None:
        self.name = ""
        self._every = every
        self._loop: TrainingLoop | None = None
        self._meter = ActivationMeter({})
        self._seen = False

    def start(self, loop: TrainingLoop) -> None:
        self._loop = loop
        self._meter = ActivationMeter(watched_modules(loop.trainee.model))

    def before_step(self, step: int) -> None:
        if due(self._every, step):
            self._meter.attach()
            self._seen = True

    def after_backward(self, step: int) -> None:
        self._meter.detach()

    def figures(self, step: int) -> Mapping[str, Any]:
        if not self._seen:
            return {}
        self._seen = False
        assert self._loop is not None
        ranges = self._meter.ranges(self._loop.ranks)
        return {"activations": {name: [one.lowest, one.highest, one.rms] for name, one in ranges.items()}}

    def close(self) -> None:
        self._meter.detach()


def watched_modules(model: nn.Module) -> dict[str, nn.Module]:
    """Norm of the embedding, every block with its halves, and norm of the output."""
    blocks = dict(model.get_submodule("blocks").named_children())
    names = ["embedding_norm", *(f"blocks.{layer}{part}" for layer in blocks for part in PARTS), "output_norm"]
    return {name: model.get_submodule(name) for name in names}
