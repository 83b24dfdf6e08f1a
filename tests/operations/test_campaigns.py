"""The campaigns in short: a few rounds of each hold, and a round that does not hold is said and kept."""

from __future__ import annotations

import json
import logging
import os
import uuid
from pathlib import Path
from typing import Any

import pytest

from operations.soak import boundaries, kills, race, saves, steps, zombies
from operations.soak.campaign import Campaign, Round, begun_for_nothing
from operations.soak.graph import WIDE_STEPS


def verdict(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The last line."""
    return dict(json.loads(capsys.readouterr().out.splitlines()[-1]))


def test_drivers_that_die_at_random_writes_over_a_failing_store_lose_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert boundaries.main(["--rounds", "4", "--seed", "3", "--folder", str(tmp_path)]) == 0
    found = verdict(capsys)
    assert found["held"] is True
    assert found["rounds"] == 4
    assert found["deaths"] >= 2


@pytest.mark.slow
def test_drivers_die_on_an_object_store_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert boundaries.main(["--rounds", "1", "--seed", "4", "--folder", str(tmp_path), "--emulator", "s3"]) == 0
    assert verdict(capsys)["held"] is True


@pytest.mark.slow
def test_five_drivers_race_over_two_hundred_steps_with_kills(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert race.main(["--rounds", "1", "--seed", "3", "--folder", str(tmp_path)]) == 0
    found = verdict(capsys)
    assert found["held"] is True
    assert found["commits"] == WIDE_STEPS
    assert found["kills"] >= 1


@pytest.mark.slow
def test_zombies_change_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert zombies.main(["--rounds", "3", "--seed", "3", "--folder", str(tmp_path)]) == 0
    assert verdict(capsys)["held"] is True


@pytest.mark.slow
def test_memory_files_and_threads_stay_flat_over_many_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--steps", "80", "--save-every", "8", "--evaluations", "4", "--growth", "0.02", "--folder", str(tmp_path)]
    assert steps.main(asked) == 0
    assert verdict(capsys)["held"] is True
    assert list(tmp_path.iterdir()) == []


def test_growth_that_goes_on_after_the_warm_up_is_seen() -> None:
    flat = [steps.Sample(step, 100_000_000 + 10_000 * (step < 30), 40, 6) for step in range(100)]
    assert steps.judged(flat, 0.01)["held"]
    leaking = [steps.Sample(step, 100_000_000 + 50_000 * step, 40, 6) for step in range(100)]
    assert not steps.judged(leaking, 0.01)["held"]
    opening = [steps.Sample(step, 100_000_000, 40 + step // 10, 6) for step in range(100)]
    assert not steps.judged(opening, 0.01)["held"]


def test_saves_over_a_disk_that_is_full_now_and_then_all_come_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saves, "SAVES", 16)
    logging.disable(logging.CRITICAL)  # torch's line a tensor would be kept, and counted as memory
    try:
        assert saves.main(["--rounds", "1", "--seed", "3", "--folder", str(tmp_path)]) == 0
    finally:
        logging.disable(logging.NOTSET)
    found = verdict(capsys)
    assert found["held"] is True
    assert found["saves"] == 16
    assert found["failures"] >= 2


def test_a_round_that_does_not_hold_ends_the_campaign_and_its_folder_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def play(one: Round) -> None:
        one.counts["drivers"] += 1
        one.expect(one.number < 2, "the second round is bad")

    campaign = Campaign("trial", 7, 1.0, 5, tmp_path)
    assert campaign.run(play) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["violations"] for line in lines if "round" in line] == [[], ["the second round is bad"]]
    assert lines[-1] == {"campaign": "trial", "seed": 7, "rounds": 2, "drivers": 2, "held": False}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["round2"]


def test_a_round_that_breaks_off_does_not_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def play(one: Round) -> None:
        raise TimeoutError("a driver did not end")

    assert Campaign("trial", 0, 1.0, 5, tmp_path).run(play) == 1
    assert "TimeoutError: a driver did not end" in capsys.readouterr().out


def test_a_campaign_that_had_no_round_proves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert Campaign("trial", 0, 0.0, None, tmp_path).run(lambda one: None) == 1
    assert verdict(capsys)["rounds"] == 0


def test_the_choices_of_a_round_come_from_its_seed(tmp_path: Path) -> None:
    def choices(seed: str) -> list[float]:
        return [Round(1, seed, tmp_path, "prefix").random.random() for _ in range(3)]

    assert choices("1/1") == choices("1/1") != choices("1/2")


def test_work_that_two_undisturbed_processes_begin_is_seen(tmp_path: Path) -> None:
    (tmp_path / "executions").mkdir()
    for order, (epoch, pid) in enumerate([(1, 11), (2, 12), (3, 13)]):
        path = tmp_path / "executions" / f"soak.source-0123456789@{epoch}.{pid}.{uuid.uuid4().hex}"
        path.touch()
        os.utime(path, ns=(order, order))
    assert len(list(begun_for_nothing(tmp_path, set()))) == 2
    assert len(list(begun_for_nothing(tmp_path, {11}))) == 1
    assert list(begun_for_nothing(tmp_path, {11, 12})) == []


@pytest.mark.ray
@pytest.mark.slow
def test_a_training_run_that_loses_a_node_a_rank_and_drivers_at_bad_moments_has_the_curve_of_an_undisturbed_one(
    smoke_prefix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = "rank:evaluation,node:restore,interrupt:training,driver:save"
    folder = ["--folder", str(tmp_path), "--reference", str(smoke_prefix)]
    assert kills.main(["--plan", plan, *folder]) == 0, capsys.readouterr().out
    found = verdict(capsys)
    assert found["held"] is True
    assert (found["kills"], found["drivers"], found["steps"]) == (4, 3, 30)
    assert found["largest difference"] == 0
