"""Steps that are not finite: where it began, what is kept of them, and the rerun in fp32."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from marin.checkpoint.completeness import survey
from marin.parallel.config import ParallelPlan
from tests.checkpoint.holder import holder
from tests.training.rank_pool import RankFailed, shared_pool
from tests.training.toy import ToyTask, toy_batch, toy_training, train_toy
from tests.training.watch.disturbances import Breaks

EXPERTS = ParallelPlan(dp_shard=2, ep=2)
TRAINING = toy_training(skips_in_a_row=2)


def failure(task: ToyTask, world: int = 2) -> str:
    """What the run ends with; every rank raises the same."""
    with pytest.raises(RankFailed) as caught:
        shared_pool().run(train_toy, task, world)
    errors = caught.value.errors
    assert {name for name, _ in errors.values()} == {"StepError"}
    assert len(errors) == world
    return errors[0][1].splitlines()[-1]


def kept(task: ToyTask, name: str) -> dict[str, Any]:
    state = holder(task.prefix, epoch=9).state
    (file,) = state.find(f"numerics/{name}")
    found: dict[str, Any] = json.loads(state.store.read(file.key))
    return found


def test_a_module_that_breaks_on_one_rank_is_named_with_its_batch_and_the_state_of_before_stays(tmp_path: Path) -> None:
    task = ToyTask(str(tmp_path), plan=EXPERTS, watched=True, training=TRAINING)
    broken = replace(task, hooks=(Breaks(step=6, rank=1, module="blocks.1.attention"),))
    text = failure(broken)
    assert "2 steps in a row, the last of them step 7" in text
    assert "the first module with an output that is not finite is blocks.1.attention" in text
    assert "numerics/step-00000007" in text
    assert "training.debug_numerics" in text

    found = kept(task, "step-00000007/findings.json")
    assert found["first_module"] == "blocks.1.attention"
    assert found["ranks"] == [1] or found["ranks"] == [0, 1], "rows of rank 1 reach experts of rank 0"
    assert found["skipped_steps"] == {"6": [40, 47], "7": [48, 55]}
    assert found["activations"]["blocks.0"]["finite"] is True
    assert found["activations"]["blocks.0"]["lowest"] < 0 < found["activations"]["blocks.0"]["rms"]
    assert found["activations"]["blocks.1"] == {"lowest": None, "highest": None, "rms": None, "finite": False}
    assert found["largest_gradients"]["blocks.0.attention.query"] is None
    for rank in (0, 1):
        sequences = kept(task, f"step-00000007/rank-{rank:04d}.json")["sequences"]
        places = list(range(48 + 4 * rank, 52 + 4 * rank))
        assert [one["place"] for one in sequences] == places
        assert [one["tokens"] for one in sequences] == toy_batch(range(places[0], places[-1] + 1)).tokens.tolist()
    assert survey(holder(task.prefix).state).complete[0].step == 4

    again = failure(replace(broken, epoch=2, training=replace(TRAINING, debug_numerics=True)))
    assert "step 6 is not finite in fp32 either" in again
    assert "blocks.1.attention" in again
    assert kept(task, "fp32-step-00000006/findings.json")["first_module"] == "blocks.1.attention"

    cured = failure(replace(task, epoch=3, training=replace(TRAINING, debug_numerics=True)))
    assert "step 7, which was not finite before, is finite in fp32: look at the precision first" in cured
    assert survey(holder(task.prefix, epoch=3).state).complete[0].step == 4, "debugging saves nothing"


def test_a_loss_that_is_infinite_over_finite_activations_is_told_apart(tmp_path: Path) -> None:
    poison = tuple((step, 0) for step in (3, 4))
    task = ToyTask(str(tmp_path), watched=True, training=TRAINING, poison=poison)
    text = failure(task, 1)
    assert "all outputs are finite; the first gradient that is not is that of head" in text
    found = kept(task, "step-00000004/findings.json")
    assert found["first_module"] is None
    assert all(one["finite"] for one in found["activations"].values())


def test_a_single_skipped_step_leaves_no_evidence_and_no_cost(tmp_path: Path) -> None:
    task = ToyTask(str(tmp_path), watched=True, training=TRAINING, poison=((3, 0), (5, 0)))
    result = shared_pool().run(train_toy, task, 1)[0]
    assert result.skipped == 2
    assert not holder(task.prefix).state.find("numerics/*")
