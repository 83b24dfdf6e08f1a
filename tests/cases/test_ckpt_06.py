"""ckpt-06: router biases, and the range that their next histogram has, survive a save and a change of ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from marin.checkpoint.completeness import survey
from marin.checkpoint.errors import KeyMismatch
from marin.checkpoint.reading import load_tensors
from marin.checkpoint.tensors import announce_loaded, model_tensors
from marin.model.transformer import Transformer
from tests.checkpoint.holder import holder
from tests.training.rank_pool import shared_pool
from tests.training.toy import ToyTask, toy_batch, toy_model, toy_training, train_toy


@pytest.mark.parametrize("world", [1, 2])
def test_biases_are_stored_in_full_precision_and_needed_for_a_restore(world: int, tmp_path: Any) -> None:
    training = toy_training(steps=20, checkpoints=replace(toy_training().checkpoints, every_steps=50))
    trained = shared_pool().run(train_toy, ToyTask(str(tmp_path), training=training, double=False), world)[0]
    assert max(abs(value) for layer in trained.bias for value in layer) > 0.01

    state = holder(str(tmp_path)).state
    (found,) = survey(state).complete
    model = Transformer(toy_model())

    def read(name: str) -> Any:
        return state.store.open(found.keys[name])

    load_tensors(read, model_tensors(model), where="checkpoint", prefix="model.")
    announce_loaded(model)
    assert [router.bias.tolist() for router in model.routers()] == trained.bias
    assert all(not router.is_first_step for router in model.routers())

    batch = toy_batch(range(4))
    tokens, segments, positions = (torch.from_numpy(a) for a in (batch.tokens, batch.segments, batch.positions))
    with torch.no_grad():
        with_bias = model.eval()(tokens, segments, positions)
        for router in model.routers():
            router.bias.zero_()
        assert not torch.equal(model(tokens, segments, positions), with_bias)

    without = {name: tensor for name, tensor in model_tensors(model).items() if not name.endswith("router.bias")}
    with pytest.raises(KeyMismatch, match=r"unexpected in the checkpoint \(2\)"):
        load_tensors(read, without, where="checkpoint", prefix="model.")
