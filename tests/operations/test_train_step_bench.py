"""The benchmark of the training step compares equal models, notices when they are not, and counts what is needed."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import pytest
import torch

from marin.model.packing import Packing
from tests.operations.scripts import loaded

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    return loaded("train_step")


@pytest.fixture(scope="module")
def tiny(bench: ModuleType):
    return bench.Size(bench.as_peer(width=32, experts=4, chosen=2, expert_width=16, vocab=61, length=12), 2, 0.5)


def test_both_sides_have_one_loss_and_one_gradient_of_every_parameter(bench: ModuleType, tiny) -> None:
    ours, peer = bench.pair(tiny)
    assert bench.check_equal(ours, peer, tiny.model) < 1e-5
    row = bench.compare("tiny", tiny, rounds=1)
    assert row["ours"] > 0
    assert row["peer_implementation"].split("+")[0] in ("eager", "grouped_mm", "batched_mm")
    assert len(row["peer_tried_s"]) == 6


def test_one_wrong_gradient_ends_the_comparison_though_the_losses_agree(bench: ModuleType, tiny) -> None:
    ours, peer = bench.pair(tiny)
    ours.model.blocks[1].attention.key_gain.register_hook(lambda grad: grad * 1.001)
    with pytest.raises(SystemExit, match=r"differ by 1\.0e-03 at blocks\.1\.attention\.key_gain"):
        bench.check_equal(ours, peer, tiny.model)


def test_the_attention_that_is_counted_is_what_queries_see(bench: ModuleType, tiny) -> None:
    model = replace(tiny.model, window=5, global_every=2, layers=3)
    plain = bench.flops_per_token(replace(model, window=1, global_every=99, layers=3))
    packing = Packing(torch.zeros(1, 12, dtype=torch.int32), torch.arange(12)[None])
    seen = [int(packing.visible_BTT(None if model.is_global(i) else 5).sum()) for i in range(3)]
    alone = [int(packing.visible_BTT(None if i == 2 else 1).sum()) for i in range(3)]
    more = 12 * model.heads * model.head_dim * (sum(seen) - sum(alone)) / 12
    assert bench.flops_per_token(model) - plain == pytest.approx(more)


def test_every_part_of_the_block_is_taken_away_alone(bench: ModuleType, tiny) -> None:
    parts = loaded("step_parts")
    model = parts.full(tiny)
    others = parts.without(model)
    assert len({repr(other) for other in others.values()} | {repr(model)}) == len(others) + 1
    for make in (model, others["latent width"]):
        parts.step_of(make, 2, parts.OptimizerKind.MUONH)()
