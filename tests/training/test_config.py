"""A training run's numbers, and how impossible ones are refused."""

from __future__ import annotations

from typing import Any

import pytest

from marin.checkpoint.config import CheckpointPolicy
from marin.optim.config import OptimizerConfig
from marin.tokens.mixture.batches import BatchChange
from marin.training.config import TrainingConfig, ValidationGrid


def config(**fields: Any) -> TrainingConfig:
    return TrainingConfig(**({"steps": 200, "batch_sequences": 12, "optimizer": OptimizerConfig(1e-3)} | fields))


def test_the_schedule_warms_up_over_its_share_and_ends_at_its_final_share() -> None:
    schedule = config(warmup_share=0.1, final_share=0.05).schedule
    assert [schedule.share(0), schedule.share(19)] == [1 / 20, 1.0]
    assert schedule.share(200) == 0.05


def test_every_sequence_of_a_ranks_part_is_in_exactly_one_micro_batch() -> None:
    parts = config(micro_batch_sequences=4).micro_batches(2)
    assert parts == ((0, 4), (4, 2))
    assert config().micro_batches(3) == ((0, 4),)


def test_a_batch_that_does_not_divide_among_the_ranks_names_the_numbers_that_do() -> None:
    with pytest.raises(ValueError, match=r"batch_sequences is 12 on 5 ranks.*1 or 2 or 3 or 4 ranks"):
        config().micro_batches(5)


def test_batches_that_change_at_a_step_divide_among_the_ranks_at_every_size() -> None:
    changing = config(batch_changes=(BatchChange(10, 24), BatchChange(50, 36)))
    assert changing.sequences == 10 * 12 + 40 * 24 + 150 * 36
    assert [changing.rank_sequences(4, step) for step in (0, 9, 10, 50)] == [3, 3, 6, 9]
    assert changing.micro_batches(2, 50) == ((0, 18),)
    with pytest.raises(ValueError, match=r"batch_changes: a size is 36 on 8 ranks|batch_sequences is 12 on 8 ranks"):
        changing.micro_batches(8)
    with pytest.raises(ValueError, match=r"batch_changes: a size is 10 on 4 ranks.*1 or 2 ranks"):
        config(batch_changes=(BatchChange(10, 10),)).micro_batches(4)
    with pytest.raises(ValueError, match="batch_changes has a change at step 200; steps ascend, from 1 to 199"):
        config(batch_changes=(BatchChange(200, 24),))


def test_the_grid_is_percents_of_the_run_and_its_end() -> None:
    assert ValidationGrid(percents=(0, 10, 50)).steps(200) == {0, 20, 100, 200}
    assert ValidationGrid(percents=()).steps(7) == {7}


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"steps": 0}, "steps"),
        ({"batch_sequences": -1}, "batch_sequences"),
        ({"micro_batch_sequences": 0}, "micro_batch_sequences"),
        ({"warmup_share": 1.0}, "warmup_share"),
        ({"final_share": 1.5}, "final_share"),
        ({"gradient_clip": 0.0}, "gradient_clip"),
        ({"skips_in_a_row": 0}, "skips_in_a_row"),
    ],
)
def test_an_impossible_value_is_refused_by_name(fields: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is {next(iter(fields.values()))}"):
        config(**fields)


def test_nested_policies_are_checked_as_well() -> None:
    with pytest.raises(ValueError, match=r"checkpoints\.keep_last is 1; at least 2"):
        CheckpointPolicy(keep_last=1)
    with pytest.raises(ValueError, match=r"validation\.percents has 120"):
        ValidationGrid(percents=(120.0,))
