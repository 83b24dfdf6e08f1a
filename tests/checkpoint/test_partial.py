"""Beginning from another run's checkpoint: what is taken, what starts afresh, and what is said about it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.optim import Optimizer

from marin.checkpoint.completeness import FoundCheckpoint
from marin.checkpoint.config import Part
from marin.checkpoint.errors import KeyMismatch
from marin.checkpoint.partial import Source, load_part
from marin.checkpoint.reading import opener
from marin.checkpoint.tensors import model_tensors, optimizer_tensors
from marin.execution.running.context import Run
from marin.model.transformer import Transformer
from marin.optim.build import build_optimizer
from marin.optim.config import OptimizerConfig, OptimizerKind
from marin.parallel.build import build_model
from marin.training.tensors import on_device
from tests.checkpoint.holder import holder
from tests.checkpoint.test_store import progress_at, store_of
from tests.training.toy import toy_batch, toy_model

ADAMW = OptimizerConfig(3e-3)
MUONH = OptimizerConfig(3e-3, kind=OptimizerKind.MUONH)
CPU = torch.device("cpu")


def made(config: OptimizerConfig, seed: int = 1) -> tuple[Transformer, Optimizer]:
    model = build_model(toy_model(), seed=seed)
    return model, build_optimizer(model, config)


def train(model: Transformer, optimizer: Optimizer, first: int, steps: int) -> list[float]:
    """The losses of some steps; router biases move with them."""
    losses = []
    for step in range(first, first + steps):
        result = model(*on_device(toy_batch(range(4 * step, 4 * step + 4)), CPU))
        torch.autograd.backward(result.total_sum / result.token_count)
        losses.append(float(result.nll_sum.detach()))
        optimizer.step()
        optimizer.zero_grad()
        model.update_router_bias()
    return losses


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, FoundCheckpoint, Transformer, Optimizer]:
    """A model after some steps of AdamW, and its checkpoint."""
    model, optimizer = made(ADAMW)
    train(model, optimizer, 0, 4)
    run = holder(str(tmp_path_factory.mktemp("saved")))
    found = store_of(run).save(model_tensors(model) | optimizer_tensors(model, optimizer), progress_at(4))
    return run, found, model, optimizer


def test_all_of_the_state_goes_on_exactly(saved: tuple[Run, FoundCheckpoint, Transformer, Optimizer]) -> None:
    run, found, model, optimizer = saved
    other, fresh = made(ADAMW, seed=2)
    report = load_part(Source(found.describe(), opener(run.state.store, found.keys)), other, fresh, Part.ALL)
    assert (report.skipped, report.missing) == ((), ())
    theirs = model_tensors(model) | optimizer_tensors(model, optimizer)
    assert set(report.loaded) == set(theirs)
    own = model_tensors(other) | optimizer_tensors(other, fresh)
    assert all(torch.equal(own[name], theirs[name]) for name in theirs)


def test_weights_alone_bring_the_router_biases_and_leave_the_optimizer_fresh(
    saved: tuple[Run, FoundCheckpoint, Transformer, Optimizer],
) -> None:
    run, found, model, _ = saved
    other, fresh = made(ADAMW, seed=2)
    report = load_part(Source(found.describe(), opener(run.state.store, found.keys)), other, fresh, Part.WEIGHTS)
    assert {name.partition(".")[0] for name in report.loaded} == {"model"}
    assert report.skipped
    assert all(name.startswith("optimizer.") for name in report.skipped)
    assert "not taken of it" in report.describe()
    biases = [router.bias for router in other.routers()]
    assert all(bool(bias.any()) for bias in biases)
    assert all(torch.equal(bias, theirs.bias) for bias, theirs in zip(biases, model.routers(), strict=True))
    assert not fresh.state
    # As one that had these weights from the beginning.
    straight, its_optimizer = made(ADAMW)
    straight.load_state_dict(model.state_dict())
    assert train(other, fresh, 4, 3) == train(straight, its_optimizer, 4, 3)


def test_another_optimizer_takes_what_both_keep_and_starts_the_rest_afresh(
    saved: tuple[Run, FoundCheckpoint, Transformer, Optimizer],
) -> None:
    run, found, model, optimizer = saved
    other, muonh = made(MUONH, seed=2)
    report = load_part(
        Source(found.describe(), opener(run.state.store, found.keys)), other, muonh, Part.WEIGHTS_AND_FITTING_OPTIMIZER
    )
    theirs = optimizer_tensors(model, optimizer)
    names = {id(parameter): name for name, parameter in other.named_parameters()}
    kept = {names[id(parameter)] for parameter, state in muonh.state.items() if state}
    assert "embedding.weight" in kept
    for parameter, state in muonh.state.items():
        for key, value in state.items():
            assert torch.equal(value, theirs[f"optimizer.{names[id(parameter)]}.{key}"])
    matrices = next(group["params"] for group in muonh.param_groups if group["name"] == "muonh")
    assert not {names[id(parameter)] for parameter in matrices} & kept
    assert any(name.endswith(".momentum") for name in report.missing)
    train(other, muonh, 4, 1)
    assert optimizer_tensors(other, muonh).keys() >= set(report.missing)


def test_a_layer_that_only_one_side_has_is_refused_unless_it_is_named(
    saved: tuple[Run, FoundCheckpoint, Transformer, Optimizer],
) -> None:
    run, found, _, _ = saved
    deeper = build_model(replace(toy_model(), layers=3), seed=3)
    fresh = build_optimizer(deeper, ADAMW)
    source = Source(found.describe(), opener(run.state.store, found.keys))
    with pytest.raises(KeyMismatch, match="missing in the checkpoint"):
        load_part(source, deeper, fresh, Part.WEIGHTS)
    added = {name for name in model_tensors(deeper) if name.startswith("model.blocks.2.")}
    before = {name: tensor.clone() for name, tensor in model_tensors(deeper).items()}
    report = load_part(source, deeper, fresh, Part.WEIGHTS, allow=["model.blocks.2.*"])
    assert set(report.missing) == added
    assert added
    assert all(torch.equal(tensor, before[name]) for name, tensor in model_tensors(deeper).items() if name in added)


def test_weights_alone_need_no_file_of_the_optimizer_to_be_of_this_kind(tmp_path: Path) -> None:
    model, optimizer = made(MUONH)
    train(model, optimizer, 0, 2)
    run = holder(str(tmp_path))
    found = store_of(run).save(model_tensors(model) | optimizer_tensors(model, optimizer), progress_at(2))
    other, adamw = made(ADAMW, seed=2)
    with pytest.raises(KeyMismatch, match="momentum"):
        load_part(Source(found.describe(), opener(run.state.store, found.keys)), other, adamw, Part.ALL)
    load_part(Source(found.describe(), opener(run.state.store, found.keys)), other, adamw, Part.WEIGHTS)
    assert torch.equal(other.get_parameter("embedding.weight"), model.get_parameter("embedding.weight"))
