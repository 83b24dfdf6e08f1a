"""Beginning from a checkpoint of another run: all of its state, its weights, or its weights and what fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from marin.checkpoint.artifacts import Checkpoint
from marin.checkpoint.config import Part
from marin.checkpoint.errors import CheckpointError
from marin.checkpoint.keys import TensorForm, check_keys
from marin.checkpoint.layout import PROGRESS, published_folder
from marin.checkpoint.progress import Progress
from marin.checkpoint.reading import Opener, fill, forms_of, stored_forms
from marin.checkpoint.tensors import (
    MODEL,
    OPTIMIZER,
    announce_loaded,
    create_optimizer_state,
    model_tensors,
    optimizer_tensors,
)

SHOWN = 5
"""Names of one kind that a report lists before it counts the rest."""


@dataclass(frozen=True)
class Source:
    """A complete checkpoint, wherever it lies. `read` opens its files by their names inside it."""

    where: str
    read: Opener

    @classmethod
    def published(cls, checkpoint: Checkpoint, step: int | None = None) -> Source:
        """What a finished run published: its last state, or the permanent checkpoint after `step` steps."""
        if step is not None and step != checkpoint.step and step not in checkpoint.permanent_steps:
            there = ", ".join(map(str, (*checkpoint.permanent_steps, checkpoint.step)))
            raise CheckpointError(f"there is no checkpoint of step {step}; the run published those of step {there}")
        folder = published_folder(None if step == checkpoint.step else step)
        where = f"checkpoint of step {checkpoint.step if step is None else step}"
        return cls(where=where, read=lambda name: checkpoint.open(f"{folder}/{name}"))

    def progress(self) -> Progress:
        """All of it that is not a tensor."""
        with self.read(PROGRESS) as stream:
            return Progress.from_bytes(stream.read())


@dataclass(frozen=True)
class LoadReport:
    """What became of each tensor, by name."""

    where: str
    loaded: tuple[str, ...]
    skipped: tuple[str, ...]
    """In the checkpoint, but not taken."""
    missing: tuple[str, ...]
    """Of this run, but not taken from the checkpoint: they are as they were made."""

    def describe(self) -> str:
        """Some lines for the log."""
        lines = [f"{len(self.loaded)} tensors were loaded from the {self.where}"]
        for title, names in (("not taken of it", self.skipped), ("of this run and not in it", self.missing)):
            if names:
                rest = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
                lines.append(f"{title} ({len(names)}): {', '.join(names[:SHOWN])}{rest}")
        return "\n".join(lines)


def load_part(
    source: Source,
    model: nn.Module,
    optimizer: Optimizer,
    wanted: Part,
    *,
    allow: Sequence[str] = (),
    group: dist.ProcessGroup | None = None,
) -> LoadReport:
    """Fills model and optimizer from a checkpoint in place; all ranks of `group` together.

    Weights are strict: every name, shape and dtype must agree, but for names that match a pattern of `allow`, such as
    `model.head.*`, which may be missing on either side. Raises KeyMismatch with all that differ. With `Part.ALL` the
    optimizer's state is as strict.
    """
    stored = stored_forms(source.read)
    weights = model_tensors(model)
    kept = {name: form for name, form in stored.items() if name.startswith(MODEL)}
    check_keys(kept, forms_of(weights), source.where, allow)
    state: dict[str, Tensor] = {}
    if wanted is not Part.WEIGHTS:
        if any(name.startswith(OPTIMIZER) for name in stored):
            create_optimizer_state(optimizer)
        state = optimizer_tensors(model, optimizer)
    taken: Mapping[str, Tensor]
    if wanted is Part.ALL:
        check_keys(stored, forms_of(weights | state), source.where, allow)
        taken = state
    else:
        taken = _fitting(stored, state)
        _start_afresh(model, optimizer, {name for name in state if name not in taken})
    names = weights | dict(taken)
    chosen = {name: tensor for name, tensor in names.items() if name in stored}
    fill(source.read, chosen, where=source.where, group=group)
    announce_loaded(model)
    return LoadReport(
        where=source.where,
        loaded=tuple(chosen),
        skipped=tuple(sorted(stored.keys() - chosen.keys())),
        missing=tuple(sorted((weights | state).keys() - chosen.keys())),
    )


def _fitting(stored: Mapping[str, TensorForm], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The optimizer's state of every parameter that the checkpoint has in the same names and forms, and no other."""
    own, theirs = _by_parameter(forms_of(state)), _by_parameter(stored)
    agreed = {parameter for parameter, forms in own.items() if theirs.get(parameter) == forms}
    return {name: tensor for name, tensor in state.items() if _parameter_of(name) in agreed}


def _by_parameter(forms: Mapping[str, TensorForm]) -> dict[str, dict[str, TensorForm]]:
    grouped: dict[str, dict[str, TensorForm]] = {}
    for name, form in forms.items():
        if name.startswith(OPTIMIZER):
            grouped.setdefault(_parameter_of(name), {})[name] = form
    return grouped


def _parameter_of(name: str) -> str:
    """The parameter's name in `optimizer.<parameter>.<state>`."""
    return name.removeprefix(OPTIMIZER).rpartition(".")[0]


def _start_afresh(model: nn.Module, optimizer: Optimizer, names: set[str]) -> None:
    """Removes the state of these names, so that the optimizer makes it in its next step."""
    parameters = dict(model.named_parameters())
    for parameter in {_parameter_of(name) for name in names}:
        optimizer.state.pop(parameters[parameter], None)
