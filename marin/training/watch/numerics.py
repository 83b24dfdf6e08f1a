"""What is kept of steps whose loss or gradient is not finite, and where in the model it began.

A single such step is skipped and counted by the loop. When the run ends because of too many in a row, the last one is
repeated (its update was skipped, so weights and batch are the same) with every module measured, and its batch, its
documents and the ranges go into `numerics/` of the run's state. A rerun in fp32 that measures every step from the last
checkpoint on (`training.debug_numerics`) says whether precision was the cause, and which module came first.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from marin.checkpoint.state_folder import StateFolder
from marin.execution import StepError
from marin.optim.guard import Skip
from marin.parallel.sharding import local_of
from marin.tokens.mixture.packing import Batch
from marin.tokens.mixture.prefetch import LoadFigures
from marin.training.global_batch import GlobalBatch, agreed_batch
from marin.training.hooks import Hook
from marin.training.train_step import gradients
from marin.training.watch.activations import ActivationMeter, Range, tensors_of
from marin.training.watch.folders import NUMERICS

if TYPE_CHECKING:
    from marin.training.loop import TrainingLoop
    from marin.training.process_group import RankContext

WHOLE_MODEL = "the loss"

logger = logging.getLogger(__name__)


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
        modules = {name or WHOLE_MODEL: module for name, module in model.named_modules()}
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


class NumericsGuard(Hook):
    """Keeps the evidence when a run ends for non-finite steps. It costs nothing before."""

    def __init__(self, state: StateFolder) -> None:
        self.name = ""
        self._state = state
        self._loop: TrainingLoop | None = None
        self._skipped: list[int] = []

    def start(self, loop: TrainingLoop) -> None:
        self._loop = loop
        self._skipped = list(range(loop.step - loop.skipped_in_a_row + 1, loop.step + 1))

    def after_update(self, step: int) -> None:
        loop = self._loop
        assert loop is not None
        if loop.last_skip is Skip.OVERFLOW:
            return
        if not loop.last_skip.is_failure:
            self._skipped.clear()
            return
        self._skipped.append(step)
        if len(self._skipped) < loop.training.skips_in_a_row:
            return
        found, batch = repeat_step(loop, step)
        folder = write_evidence(self._state, loop, step, found, batch, self._skipped)
        loop.evidence = (
            f" Of step {step}, {found}; its batch, documents and ranges are in {folder}. Run again with "
            "training.debug_numerics set to repeat the steps since the last checkpoint in fp32."
        )


class NumericsDebugger(Hook):
    """Measures every step until one is not finite, then ends the run with what it found."""

    def __init__(self, state: StateFolder) -> None:
        self.name = ""
        self._state = state
        self._loop: TrainingLoop | None = None
        self._microscope: Microscope | None = None
        self._known: list[int] = []
        self._found: Findings | None = None

    def start(self, loop: TrainingLoop) -> None:
        self._loop = loop
        self._microscope = Microscope(loop.trainee.model)
        self._known = evidence_steps(self._state)
        if not loop.ranks.rank:
            logger.info("numerics are debugged from step %d on, in fp32; nothing is saved", loop.step + 1)

    def before_step(self, step: int) -> None:
        assert self._microscope is not None
        self._microscope.attach()

    def after_backward(self, step: int) -> None:
        assert self._loop is not None
        assert self._microscope is not None
        self._found = self._microscope.findings(self._loop.ranks)

    def after_update(self, step: int) -> None:
        loop, found = self._loop, self._found
        assert loop is not None
        assert found is not None
        if loop.last_skip.is_failure:
            folder = write_evidence(self._state, loop, step, found, batch_of(loop, step), [step], prefix="fp32-")
            raise StepError(
                f"step {step} is not finite in fp32 either: {found}. Its batch, documents and ranges are in {folder}."
            )
        if step in self._known or step == loop.training.last_step:
            name, widest = max(found.activations.items(), key=lambda item: max(-item[1].lowest, item[1].highest))
            past = f"step {step}, which was not finite before," if step in self._known else f"every step up to {step}"
            raise StepError(
                f"{past} is finite in fp32: look at the precision first. The widest range is that of {name}, from "
                f"{widest.lowest:.4g} to {widest.highest:.4g}. Nothing was saved."
            )

    def close(self) -> None:
        if self._microscope is not None:
            self._microscope.detach()


def repeat_step(loop: TrainingLoop, step: int) -> tuple[Findings, GlobalBatch]:
    """Forward and backward pass of a step whose update was skipped, measured; leaves no gradient and no count."""
    microscope = Microscope(loop.trainee.model)
    batch = batch_of(loop, step)
    microscope.attach()
    gradients(loop.trainee, batch, loop.ranks, loop.clock, lambda result: loop.total_loss(step, result))
    found = microscope.findings(loop.ranks)
    loop.trainee.drop_gradients()
    loop.trainee.finish_routing(update=False)
    return found, batch


def batch_of(loop: TrainingLoop, step: int) -> GlobalBatch:
    """The batch of a step (from 1), read again. A collective."""
    first, parts = _places(loop, step)
    read = [loop.source.batch(first + start, count) for start, count in parts]
    return agreed_batch(read, loop.components, LoadFigures(0, 0.0, 0.0, 0), loop.ranks, None)


def write_evidence(
    state: StateFolder,
    loop: TrainingLoop,
    step: int,
    found: Findings,
    batch: GlobalBatch,
    skipped: list[int],
    prefix: str = "",
) -> str:
    """Writes a rank's sequences, and on rank 0 the findings; returns the folder. All ranks end up with it written."""
    folder = f"{NUMERICS}/{prefix}step-{step:08d}"
    first, parts = _places(loop, step)
    sequences = [
        _sequence(loop, part, row, first + start + row)
        for part, (start, count) in zip(batch.micro_batches, parts, strict=True)
        for row in range(count)
    ]
    _write(state, f"{folder}/rank-{loop.ranks.rank:04d}.json", {"rank": loop.ranks.rank, "sequences": sequences})
    if not loop.ranks.rank:
        ranges = {number: _range(loop, number) for number in skipped}
        summary = {"step": step, "skipped_steps": ranges, "real_tokens": batch.tokens, **found.as_json()}
        _write(state, f"{folder}/findings.json", summary)
    loop.ranks.ranks.gather(None)
    return state.key(folder)


def evidence_steps(state: StateFolder) -> list[int]:
    """The steps of which evidence was kept, outside debugging."""
    names = [file.name for file in state.find(f"{NUMERICS}/step-*/findings.json")]
    return sorted({int(name.split("/")[1].removeprefix("step-")) for name in names})


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


def _places(loop: TrainingLoop, step: int) -> tuple[int, tuple[tuple[int, int], ...]]:
    """The run's number of the first sequence that this rank reads at a step (from 1), and its micro-batches."""
    world = loop.ranks.world_size
    first = loop.batches.first(step - 1) + loop.ranks.rank * loop.training.rank_sequences(world, step - 1)
    return first, loop.training.micro_batches(world, step - 1)


def _range(loop: TrainingLoop, step: int) -> list[int]:
    """First and last sequence of a step's global batch."""
    return [loop.batches.first(step - 1), loop.batches.first(step) - 1]


def _sequence(loop: TrainingLoop, part: Batch, row: int, place: int) -> dict[str, Any]:
    documents = getattr(loop.source, "documents", None)
    return {
        "place": place,
        "component": loop.components[int(part.components[row])],
        "sequence": int(part.sequences[row]),
        "epoch": int(part.epochs[row]),
        "documents": documents(place) if documents is not None else None,
        "real_tokens": int(part.loss_mask[row].sum()),
        "tokens": part.tokens[row].tolist(),
    }


def _write(state: StateFolder, name: str, value: Any) -> None:
    with state.write(name) as sink:
        sink.write(json.dumps(value, allow_nan=False).encode())


def _json(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _first(order: list[str], chosen: set[str | None]) -> str | None:
    """The first of the chosen ones; ranks run the same modules in the same order."""
    return next((name for name in order if name in chosen), None)
