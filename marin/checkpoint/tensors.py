"""Which tensors a checkpoint holds, under which names.

Every tensor has one flat name: `model.<parameter or buffer>` and `optimizer.<parameter>.<state>`. The optimizer's
state is keyed by parameter name and not by position, so that neither the number of ranks nor the order of groups
matters. Hyperparameters are no state: they come from the config and the schedule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from marin.checkpoint.errors import CheckpointError
from marin.parallel.parts import local_of

M = TypeVar("M", bound=nn.Module)

MODEL = "model."
OPTIMIZER = "optimizer."


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by checkpoint name; sharded ones stay sharded, and all share the model's
    memory.
    """
    return {MODEL + name: tensor for name, tensor in model.state_dict().items()}


def optimizer_tensors(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """The optimizer's state by checkpoint name; empty before its first step."""
    if not optimizer.state:
        return {}
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found: dict[str, Tensor] = {}
    for parameter in _parameters(optimizer):
        name = names.get(id(parameter))
        if name is None:
            raise CheckpointError(
                "the optimizer holds a parameter that is not in the model: build it after sharding the model"
            )
        state = optimizer.state.get(parameter, {})
        if not state:
            raise CheckpointError(f"the optimizer has no state for {name}, but for others: it never had a gradient")
        for key, value in state.items():
            if not isinstance(value, Tensor):
                raise CheckpointError(
                    f"the optimizer keeps {key!r} of {name} as {type(value).__name__}; only tensors are saved"
                )
            found[f"{OPTIMIZER}{name}.{key}"] = value
    return found


def create_optimizer_state(optimizer: Optimizer) -> None:
    """Makes the optimizer allocate the state that it otherwise makes in its first step, so that a restore has where
    to go.

    It takes one step on zero gradients: weights and state are unspecified afterwards, and the caller overwrites both.
    """
    if optimizer.state:
        return
    for parameter in _parameters(optimizer):
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def announce_loaded(model: M) -> M:
    """Runs the load hooks of a model whose tensors were filled in place, so that nothing derived from them is kept."""
    model.load_state_dict(model.state_dict())
    return model


def first_non_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """Name of the first tensor whose part on this rank holds a NaN or an infinity, None when all are finite."""
    for name, tensor in tensors.items():
        local = local_part(tensor)
        if not local.is_floating_point() or bool(torch.isfinite(local.sum())):
            continue  # a NaN or an infinity never adds up to a finite sum, and a sum is ten times cheaper
        if not bool(torch.isfinite(local).all()):
            return name
    return None


def local_part(tensor: Tensor) -> Tensor:
    """What this rank holds of a tensor, sharded or not, without communication."""
    return local_of(tensor).detach()


def _parameters(optimizer: Optimizer) -> Iterable[Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]
