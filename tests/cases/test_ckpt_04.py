"""ckpt-04: a key that only one side has is an error with a report, never silently ignored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from marin.checkpoint.errors import KeyMismatch
from marin.checkpoint.ranks import Ranks
from marin.checkpoint.store import CheckpointStore
from marin.checkpoint.tensors import create_optimizer_state, model_tensors, optimizer_tensors
from tests.checkpoint.holder import holder
from tests.checkpoint.test_store import progress_at

Layers = dict[str, nn.Module]


def layers(**changes: nn.Module | None) -> nn.Module:
    parts: Layers = {"first": nn.Linear(4, 6), "second": nn.Linear(6, 2)}
    for name, module in changes.items():
        if module is None:
            del parts[name]
        else:
            parts[name] = module
    return nn.ModuleDict(parts)


def stepped(model: nn.Module) -> torch.optim.Optimizer:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return optimizer


VARIANTS: dict[str, tuple[Callable[[], nn.Module], list[str]]] = {
    "renamed": (
        lambda: layers(second=None, last=nn.Linear(6, 2)),
        ["missing in the checkpoint", "model.last.weight", "unexpected in the checkpoint", "model.second.weight"],
    ),
    "added": (lambda: layers(third=nn.Linear(2, 2)), ["missing in the checkpoint", "model.third.bias"]),
    "removed": (lambda: layers(second=None), ["unexpected in the checkpoint", "optimizer.second.weight.exp_avg"]),
    "reshaped": (
        lambda: layers(second=nn.Linear(6, 3)),
        ["of another shape", "model.second.weight: the checkpoint has [2, 6] torch.float32, asked for [3, 6]"],
    ),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_changed_model_is_refused_and_left_untouched(variant: str, tmp_path: Any) -> None:
    make, expected = VARIANTS[variant]
    saved = layers()
    run = holder(str(tmp_path))
    store = CheckpointStore(run.state, check_lease=run.check_lease, ranks=Ranks.alone())
    found = store.save(model_tensors(saved) | optimizer_tensors(saved, stepped(saved)), progress_at(1))
    other = make()
    optimizer = stepped(other)
    before = {name: tensor.clone() for name, tensor in other.state_dict().items()}
    with pytest.raises(KeyMismatch) as caught:
        store.load(found, model_tensors(other) | optimizer_tensors(other, optimizer))
    assert all(part in str(caught.value) for part in expected), str(caught.value)
    assert all(torch.equal(tensor, before[name]) for name, tensor in other.state_dict().items())


def test_optimizer_state_that_does_not_exist_yet_is_not_skipped(tmp_path: Any) -> None:
    saved = layers()
    run = holder(str(tmp_path))
    store = CheckpointStore(run.state, check_lease=run.check_lease, ranks=Ranks.alone())
    found = store.save(model_tensors(saved) | optimizer_tensors(saved, stepped(saved)), progress_at(1))
    fresh = layers()
    optimizer = torch.optim.AdamW(fresh.parameters(), lr=0.1)
    with pytest.raises(KeyMismatch, match=r"optimizer\.first\.bias\.exp_avg"):
        store.load(found, model_tensors(fresh) | optimizer_tensors(fresh, optimizer))
    create_optimizer_state(optimizer)
    store.load(found, model_tensors(fresh) | optimizer_tensors(fresh, optimizer))
    assert float(optimizer.state[fresh.get_parameter("first.bias")]["step"]) == 1.0
