"""The loop on one and on two ranks: the same run however it is split, and exactly resumed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from marin.model.accounting import flops_per_token
from marin.parallel.config import ParallelPlan
from marin.tokens.mixture.batches import BatchChange
from marin.tokens.mixture.config import LoaderConfig
from tests.training.rank_pool import RankFailed, shared_pool
from tests.training.toy import ToyResult, ToyTask, toy_heldout, toy_model, toy_training, train_toy

SAME_EVERYWHERE = ("loss", "objective", "gradient_norm", "learning_rate", "tokens", "tokens_total", "mixture", "router")


def life(task: ToyTask, world: int) -> list[ToyResult]:
    return shared_pool().run(train_toy, task, world)


def curve(result: ToyResult) -> list[dict[str, Any]]:
    """The figures of every step that depend on nothing but the run."""
    return [{name: line[name] for name in ("step", *SAME_EVERYWHERE)} for line in result.lines]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> list[ToyResult]:
    """An undisturbed run on two ranks, experts divided between them."""
    return life(ToyTask(str(tmp_path_factory.mktemp("straight")), plan=ParallelPlan(dp_shard=2, ep=2)), 2)


def scores(result: ToyResult) -> list[dict[str, Any]]:
    """The validations without what a clock decides."""
    return [{**validation, "seconds": 0, "time": 0} for validation in result.validations]


def losses(result: ToyResult) -> list[float]:
    return [line["loss"] for line in result.lines]


def test_the_loss_falls_and_every_step_has_one_line(straight: list[ToyResult]) -> None:
    assert [line["step"] for line in straight[0].lines] == list(range(1, 13))
    assert losses(straight[0])[-1] < losses(straight[0])[0] - 0.1
    assert straight[0].lines[0]["mixture"] == {"even": 4, "odd": 4}
    assert scores(straight[0]) == scores(straight[1])


def test_mfu_is_the_models_own_flops_of_real_tokens_over_the_measured_peak_of_all_ranks(
    straight: list[ToyResult],
) -> None:
    assert straight[0].peak_flops == straight[1].peak_flops
    for line in straight[0].lines:
        speed = line["tokens"] / line["seconds"]["step"]
        assert line["tokens_per_s"] == pytest.approx(speed)
        assert line["mfu"] == pytest.approx(speed * flops_per_token(toy_model()) / straight[0].peak_flops)


def test_a_killed_run_goes_on_bit_for_bit(straight: list[ToyResult], tmp_path: Any) -> None:
    task = ToyTask(str(tmp_path), plan=ParallelPlan(dp_shard=2, ep=2))
    with pytest.raises(RankFailed, match="after step 7"):
        life(replace(task, stop_after=7), 2)
    resumed = life(replace(task, epoch=2), 2)
    assert [step for step, *_ in resumed[0].steps] == list(range(5, 13))
    assert curve(resumed[0]) == curve(straight[0])
    assert [rank.weights for rank in resumed] == [rank.weights for rank in straight]
    assert [rank.bias for rank in resumed] == [rank.bias for rank in straight]
    assert scores(resumed[0]) == scores(straight[0])


@pytest.mark.parametrize(
    ("plan", "world", "micro"),
    [
        (ParallelPlan(), 1, None),
        (ParallelPlan(), 1, 3),
        (ParallelPlan(dp_shard=2), 2, 1),
        (ParallelPlan(dp_replicate=2), 2, None),
    ],
    ids=["one rank", "one rank in micro-batches of 3", "sharded, micro-batches of 1", "replicated"],
)
def test_ranks_and_micro_batches_change_nothing_but_rounding(
    plan: ParallelPlan, world: int, micro: int | None, straight: list[ToyResult], tmp_path: Any
) -> None:
    task = ToyTask(str(tmp_path), plan=plan, training=toy_training(micro_batch_sequences=micro))
    other = life(task, world)
    assert losses(other[0]) == pytest.approx(losses(straight[0]), rel=1e-9)
    assert other[0].bias[0] == pytest.approx(straight[0].bias[0], rel=1e-5, abs=1e-7)
    assert other[0].tokens == straight[0].tokens
    assert other[0].validations[-1]["loss"] == pytest.approx(straight[0].validations[-1]["loss"], rel=1e-9)


def test_a_run_moves_between_two_ranks_and_one_and_back_to_rounding(straight: list[ToyResult], tmp_path: Any) -> None:
    two = ToyTask(str(tmp_path), plan=ParallelPlan(dp_shard=2, ep=2))
    one = ToyTask(str(tmp_path), plan=ParallelPlan())
    with pytest.raises(RankFailed):
        life(replace(two, stop_after=4, training=toy_training(checkpoints=_every(3))), 2)
    with pytest.raises(RankFailed):
        life(replace(one, epoch=2, stop_after=7, training=toy_training(checkpoints=_every(3))), 1)
    back = life(replace(two, epoch=3), 2)
    assert [step for step, *_ in back[0].steps] == list(range(7, 13))
    assert losses(back[0]) == pytest.approx(losses(straight[0]), rel=1e-9)


def test_a_batch_that_grows_takes_the_same_sequences_on_one_rank_resumed_on_two(tmp_path: Any) -> None:
    changes = (BatchChange(3, 4), BatchChange(5, 12), BatchChange(9, 6))
    training = toy_training(batch_changes=changes, checkpoints=_every(4))
    straight_one = life(ToyTask(str(tmp_path / "one"), plan=ParallelPlan(), training=training), 1)
    assert [line["sequences"] for line in straight_one[0].lines] == [8] * 3 + [4] * 2 + [12] * 4 + [6] * 3
    assert [sum(line["mixture"].values()) for line in straight_one[0].lines] == [8] * 3 + [4] * 2 + [12] * 4 + [6] * 3
    moved = ToyTask(str(tmp_path / "moved"), plan=ParallelPlan(dp_shard=2, ep=2), training=training)
    with pytest.raises(RankFailed):
        life(replace(moved, stop_after=7), 2)
    rest = life(replace(moved, epoch=2, plan=ParallelPlan()), 1)
    assert [step for step, *_ in rest[0].steps] == list(range(5, 13))
    assert losses(rest[0]) == pytest.approx(losses(straight_one[0]), rel=1e-9)


def test_what_is_read_ahead_changes_nothing_and_its_waits_are_told(straight: list[ToyResult], tmp_path: Any) -> None:
    task = ToyTask(
        str(tmp_path), plan=ParallelPlan(dp_shard=2, ep=2), training=toy_training(loader=LoaderConfig(ahead=0))
    )
    plain = life(task, 2)
    assert curve(plain[0]) == curve(straight[0])
    for line in (*plain[0].lines, *straight[0].lines):
        assert 0 <= line["data"]["stall_seconds"] <= line["seconds"]["step"]
        assert line["data"]["tokens_per_s"] > 0


def test_fp32_on_one_rank_follows_two_ranks_to_its_own_rounding(tmp_path: Any) -> None:
    training = toy_training(steps=5)
    two = life(ToyTask(str(tmp_path / "2"), training=training, double=False), 2)
    one = life(ToyTask(str(tmp_path / "1"), training=training, double=False), 1)
    assert losses(two[0])[0] == pytest.approx(losses(one[0])[0], rel=1e-6)
    assert losses(two[0]) == pytest.approx(losses(one[0]), rel=1e-4)


def test_validation_is_weighted_by_tokens_for_any_number_of_batches(tmp_path: Any) -> None:
    heldout = (("a", 5), ("b", 1), ("c", 20))
    two = life(
        ToyTask(str(tmp_path / "2"), training=toy_training(steps=2, micro_batch_sequences=2), heldout=heldout), 2
    )
    one = life(ToyTask(str(tmp_path / "1"), training=toy_training(steps=2), heldout=heldout), 1)
    final = two[0].validations[-1]
    assert final["source_tokens"] == one[0].validations[-1]["source_tokens"]
    assert final["source_tokens"]["c"] == sum(int(b.loss_mask.sum()) for b in toy_heldout(6, 1, 6))
    assert final["losses"] == pytest.approx(one[0].validations[-1]["losses"], rel=1e-9)
    weighted = sum(final["losses"][name] * final["source_tokens"][name] for name in ("a", "b", "c"))
    assert final["loss"] == pytest.approx(weighted / final["tokens"], rel=1e-12)


def test_validation_leaves_training_as_it_was(straight: list[ToyResult], tmp_path: Any) -> None:
    grid = replace(toy_training().validation, percents=(0, 25, 50, 75))
    often = life(ToyTask(str(tmp_path), plan=ParallelPlan(dp_shard=2, ep=2), training=toy_training(validation=grid)), 2)
    assert [validation["step"] for validation in often[0].validations] == [0, 3, 6, 9, 12]
    assert [rank.weights for rank in often] == [rank.weights for rank in straight]


def test_a_finished_run_only_measures_again(straight: list[ToyResult], tmp_path: Any) -> None:
    task = ToyTask(str(tmp_path), plan=ParallelPlan(dp_shard=2, ep=2))
    life(task, 2)
    again = life(replace(task, epoch=2), 2)
    assert again[0].steps == []
    assert curve(again[0]) == curve(straight[0])
    assert again[0].validations[-1]["loss"] == straight[0].validations[-1]["loss"]


def test_a_checkpoint_of_another_run_is_refused_with_the_difference(tmp_path: Any) -> None:
    life(ToyTask(str(tmp_path), training=toy_training(steps=2)), 1)
    other = ToyTask(str(tmp_path), epoch=2, training=toy_training(steps=2), model=toy_model(window=5), mixture="other")
    with pytest.raises(RankFailed) as caught:
        life(other, 1)
    assert caught.value.errors[0][0] == "IdentityMismatch"
    assert "mixture: 'toy' -> 'other'" in str(caught.value)
    assert "model.window: 6 -> 5" in str(caught.value)


def _every(steps: int) -> Any:
    return replace(toy_training().checkpoints, every_steps=steps)
