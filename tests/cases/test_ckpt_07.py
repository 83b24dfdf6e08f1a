"""ckpt-07: a tied head is one matrix after sharding, five steps, a save and a load, and has both gradients."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from marin.checkpoint.completeness import survey
from marin.checkpoint.reading import load_tensors
from marin.checkpoint.tensors import announce_loaded, model_tensors
from marin.model.accounting import total_parameters
from marin.model.transformer import Transformer
from marin.optim.build import build_optimizer
from marin.optim.config import OptimizerConfig, OptimizerKind
from marin.parallel.build import build_model
from marin.parallel.config import ParallelPlan
from marin.parallel.meshes import build_meshes
from tests.checkpoint.holder import holder
from tests.training.rank_pool import RankFailed, shared_pool
from tests.training.toy import ToyTask, toy_batch, toy_model, toy_training, train_toy

TIED = replace(toy_model(), tied_head=True)
MUONH = OptimizerConfig(3e-3, kind=OptimizerKind.MUONH)
MATRIX = "embedding.weight"


def tensors(numbers: range) -> dict[str, torch.Tensor]:
    batch = toy_batch(numbers)
    arrays = (batch.tokens, batch.segments, batch.positions, batch.targets, batch.loss_mask)
    names = ("tokens_BT", "segments_BT", "positions_BT", "targets_BT", "loss_mask_BT")
    return {name: torch.from_numpy(array) for name, array in zip(names, arrays, strict=True)}


def sharded_gradient(_: None) -> tuple[list[str], int, torch.Tensor]:
    """Names, elements, and the whole gradient of the tied matrix, from two ranks with half of the batch each."""
    from marin.training.environment import RankEnvironment
    from marin.training.process_group import process_group

    with process_group(RankEnvironment.read()) as ranks:
        meshes = build_meshes(ParallelPlan(dp_shard=2, ep=2))
        model = build_model(TIED, meshes=meshes, seed=1, dtype=torch.float64)
        torch.autograd.backward(model(**tensors(range(2 * ranks.rank, 2 * ranks.rank + 2))).total_sum)
        named = dict(model.named_parameters())
        gradient: Any = named[MATRIX].grad
        return list(named), sum(p.numel() for p in named.values()), gradient.full_tensor()


def test_the_sharded_model_has_one_matrix_and_its_gradient_holds_both_contributions():
    names, elements, gradient = shared_pool().run(sharded_gradient, None, 2)[0]
    assert MATRIX in names and not any(name.startswith("head") for name in names)
    biases = TIED.layers * TIED.experts
    assert elements == total_parameters(TIED) - biases
    assert elements == total_parameters(toy_model()) - biases - TIED.vocab_size * TIED.width

    # The same weights with a head of its own: what each use of the matrix contributes.
    apart = build_model(toy_model(), seed=1, dtype=torch.float64)
    assert apart.head.weight is not None
    with torch.no_grad():
        apart.head.weight.copy_(apart.embedding.weight)
    torch.autograd.backward(apart(**tensors(range(4))).total_sum)
    of_embedding, of_head = apart.embedding.weight.grad, apart.head.weight.grad
    assert of_embedding is not None and of_head is not None
    assert float(of_embedding.norm()) > 1e-3 and float(of_head.norm()) > 1e-3
    torch.testing.assert_close(gradient, of_embedding + of_head, rtol=1e-10, atol=1e-12)


def test_five_steps_a_save_and_a_load_leave_one_matrix(tmp_path: Path):
    training = toy_training(
        steps=6, optimizer=MUONH, checkpoints=replace(toy_training().checkpoints, every_steps=5, keep_last=3)
    )
    task = ToyTask(str(tmp_path), model=TIED, training=training)
    with pytest.raises(RankFailed, match="after step 6"):
        shared_pool().run(train_toy, replace(task, stop_after=6), 2)

    state = holder(str(tmp_path)).state
    (found,) = survey(state).complete
    model = Transformer(TIED).double()

    def read(name: str) -> Any:
        return state.store.open(found.keys[name])

    before = model.embedding.weight.detach().clone()
    load_tensors(read, model_tensors(model), where="checkpoint", prefix="model.")
    announce_loaded(model).eval()
    assert not torch.equal(model.embedding.weight, before)
    into_head: list[torch.Tensor] = []
    model.head.register_forward_pre_hook(lambda _, arguments: into_head.append(arguments[0]))
    batch = tensors(range(2))
    with torch.no_grad():
        logits = model(batch["tokens_BT"], batch["segments_BT"], batch["positions_BT"])
    torch.testing.assert_close(logits, into_head[0] @ model.embedding.weight.T)

    resumed = shared_pool().run(train_toy, replace(task, epoch=2), 2)[0]
    uninterrupted = ToyTask(str(tmp_path / "whole"), model=TIED, training=training)
    assert [step for step, *_ in resumed.steps] == [6]
    assert resumed.weights == shared_pool().run(train_toy, uninterrupted, 2)[0].weights


def test_a_tied_matrix_is_updated_as_a_head():
    optimizer = build_optimizer(Transformer(TIED), MUONH)
    sizes = {group["name"]: [tuple(p.shape) for p in group["params"]] for group in optimizer.param_groups}
    matrix = (TIED.vocab_size, TIED.width)
    assert sizes["adamh"] == [matrix]
    assert matrix not in sizes["adam"]
