"""train-05: a step that is not finite on one of two ranks changes nothing on either, and is counted."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from marin.checkpoint.completeness import survey
from marin.checkpoint.reading import load_tensors, stored_forms
from tests.checkpoint.holder import holder
from tests.training.rank_pool import RankFailed, shared_pool
from tests.training.toy import ToyTask, toy_training, train_toy


def test_both_ranks_skip_step_seven_and_go_on(tmp_path: Any) -> None:
    results = shared_pool().run(train_toy, ToyTask(str(tmp_path), poison=((7, 1),)), 2)
    for result in results:
        changed = {step: before != after for step, _, before, after in result.steps}
        assert changed == {step: step != 7 for step in range(1, 13)}
        assert result.skipped == 1
    lines = results[0].lines
    assert [line["step"] for line in lines if line["skipped"]] == [7]
    assert [line["skipped_steps"] for line in lines] == [0] * 6 + [1] * 6
    untrained = lines[6]["tokens"]
    assert lines[-1]["tokens_total"] == sum(line["tokens"] for line in lines) - untrained
    assert [numbers for step, numbers, *_ in results[0].steps if step == 8] == [[56, 57, 58, 59]]

    state = holder(str(tmp_path)).state
    for found in survey(state).complete:

        def read(name: str, keys: Any = found.keys) -> Any:
            return state.store.open(keys[name])

        dtypes = {"torch.float64": torch.float64, "torch.float32": torch.float32}
        tensors = {name: torch.empty(form.shape, dtype=dtypes[form.dtype]) for name, form in stored_forms(read).items()}
        load_tensors(read, tensors, where="checkpoint")
        assert all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values())


def test_too_many_in_a_row_end_the_run_with_the_weights_of_before(tmp_path: Any) -> None:
    task = ToyTask(
        str(tmp_path), poison=tuple((step, 0) for step in range(5, 13)), training=toy_training(skips_in_a_row=3)
    )
    with pytest.raises(RankFailed) as caught:
        shared_pool().run(train_toy, task, 2)
    assert {name for name, _ in caught.value.errors.values()} == {"StepError"}
    assert "3 steps in a row, the last of them step 7" in str(caught.value)
    assert [found.step for found in survey(holder(str(tmp_path)).state).complete] == [4]
