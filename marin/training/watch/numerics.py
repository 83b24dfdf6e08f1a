"""What is kept of steps whose loss or gradient is not finite, and where in the model it began.

A single such step is skipped and counted by the loop. When the run ends because of too many in a row, the last one is
repeated (its update was skipped, so weights and batch are the same) with every module measured, and its batch, its
documents and the ranges go into `numerics/` of the run's state. A rerun in fp32 that measures every step from the last
checkpoint on (`training.debug_numerics`) says whether precision was the cause, and which module came first.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from marin.checkpoint.state_folder import StateFolder
from marin.execution import StepError
from marin.optim.guard import Skip
from marin.tokens.mixture.packing import Batch
from marin.tokens.mixture.prefetch import LoadFigures
from marin.training.global_batch import GlobalBatch, agreed_batch
from marin.training.hooks import Hook
from marin.training.train_step import gradients
from marin.training.watch.folders import NUMERICS
from marin.training.watch.microscope import Findings, Microscope

if TYPE_CHECKING:
    from marin.training.loop import TrainingLoop

logger = logging.getLogger(__name__)


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


def _places(loop: TrainingLoop, step: int) -> tuple[int, tuple[tuple[int, int], ...]]:
    """The run's number of the first sequence that this rank reads at a step (from 1), and its micro-batches."""
    world = loop.ranks.world_size
    first = loop.batches.first(step - 1) + loop.ranks.rank * loop.training.rank_sequences(world, step - 1)
    return first, loop.training.micro_batches(world, step - 1)


def _range(loop: TrainingLoop, step: int) -> list[int]:
    """First and last sequence of a step's global batch."""
    return [loop.batches.first(step - 1), loop.batches.first(step) - 1]


def _sequence(loop: TrainingLoop, part: Batch, row: int, place: int) -> dict[str, Any]:
    return {
        "place": place,
        "component": loop.components[int(part.components[row])],
        "sequence": int(part.sequences[row]),
        "epoch": int(part.epochs[row]),
        "documents": _documents(loop, place),
        "real_tokens": int(part.loss_mask[row].sum()),
        "tokens": part.tokens[row].tolist(),
    }


def _documents(loop: TrainingLoop, place: int) -> list[str] | str | None:
    """Ids of the documents of a sequence; where the source cannot tell, why, or None."""
    documents = getattr(loop.source, "documents", None)
    try:
        found: list[str] | None = None if documents is None else documents(place)
    except Exception as error:  # a store that refuses must not hide why the run ends
        return f"{type(error).__name__}: {error}"
    return found


def _write(state: StateFolder, name: str, value: Any) -> None:
    """A store that refuses must not hide why the run ends, nor leave the other ranks in a collective."""
    data = json.dumps(value, allow_nan=False).encode()
    try:
        with state.write(name) as sink:
            sink.write(data)
    except Exception as error:  # whatever a store client raises
        logger.error("%s cannot be written: %s: %s", name, type(error).__name__, error)
