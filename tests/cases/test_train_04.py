"""Learning-rate schedules with empty, full, overlapping and impossible phases."""

import math

import pytest

from marin.optim.config import OptimizerConfig, Schedule, ScheduleShape
from marin.training.config import TrainingConfig

POSSIBLE = [(10, 2, 8, 0.0), (10, 0, 0, 0.0), (10, 0, 10, 0.1), (10, 10, 0, 0.0), (1, 0, 1, 0.0), (1, 1, 0, 0.0)]
IMPOSSIBLE = [(10, 8, 8), (10, 20, 0), (0, 0, 0), (-1, 0, 0), (10, -1, 0)]


@pytest.mark.parametrize("shape", list(ScheduleShape))
@pytest.mark.parametrize("setting", POSSIBLE, ids=str)
def test_rates_are_finite_reach_the_peak_and_stay_at_the_minimum_after_the_end(
    setting: tuple[int, int, int, float], shape: ScheduleShape
):
    total, warmup, decay, minimum = setting
    schedule = Schedule(total, warmup, decay, minimum, shape)
    shares = [schedule.share(step) for step in range(total + 5)]
    assert all(math.isfinite(share) and minimum <= share <= 1 for share in shares)
    assert max(shares) == 1.0
    assert shares[total:] == [minimum] * 5


@pytest.mark.parametrize("shape", list(ScheduleShape))
@pytest.mark.parametrize("setting", IMPOSSIBLE, ids=str)
def test_impossible_settings_are_refused_with_their_numbers(setting: tuple[int, int, int], shape: ScheduleShape):
    with pytest.raises(ValueError) as error:
        Schedule(*setting, shape=shape)
    assert any(str(number) in str(error.value) for number in setting)


def test_warm_up_of_two_and_decay_of_eight():
    shares = [Schedule(10, 2, 8).share(step) for step in range(11)]
    assert shares == pytest.approx([0.5, 1.0, 1.0, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8, 0.0])


def test_a_cosine_falls_by_half_a_cosine():
    shares = [Schedule(8, 0, 8, 0.1, ScheduleShape.COSINE).share(step) for step in range(9)]
    assert shares == pytest.approx([0.1 + 0.9 * (1 + math.cos(math.pi * step / 8)) / 2 for step in range(9)])


def training(**fields: object) -> TrainingConfig:
    return TrainingConfig(batch_sequences=1, optimizer=OptimizerConfig(0.01), **fields)


def test_shapes_are_shares_of_the_run_whatever_its_length():
    for steps in (200, 4000):
        shares = {
            shape: training(steps=steps, warmup_share=0.05, final_share=0.1, schedule_shape=shape).schedule
            for shape in ScheduleShape
        }
        warmup = steps // 20
        assert all(s.share(warmup // 2 - 1) == 0.5 and s.share(warmup - 1) == 1 for s in shares.values())
        assert all(s.share(steps) == 0.1 for s in shares.values())
        # wsd holds the peak until its last fifth, half of which leaves half of the fall.
        wsd = shares[ScheduleShape.WSD]
        assert {wsd.share(step) for step in range(warmup - 1, steps * 4 // 5 + 1)} == {1.0}
        assert wsd.share(steps * 9 // 10) == pytest.approx(0.55)
        middle = warmup + (steps - warmup) // 2
        assert shares[ScheduleShape.LINEAR].share(middle) == pytest.approx(0.55)
        assert shares[ScheduleShape.COSINE].share(middle) == pytest.approx(0.55)
        early = warmup + (steps - warmup) // 4
        assert shares[ScheduleShape.COSINE].share(early) > 0.85 > shares[ScheduleShape.LINEAR].share(early)


def test_a_run_of_one_step_has_every_shape():
    for shape in ScheduleShape:
        assert training(steps=1, schedule_shape=shape).schedule.share(0) == 1.0


@pytest.mark.parametrize("fields", [{"decay_share": 0.0}, {"decay_share": 1.1}, {"decay_share": 0.6}])
def test_phases_that_do_not_fit_the_run_are_refused(fields: dict[str, float]):
    with pytest.raises(ValueError, match=str(fields["decay_share"])):
        training(steps=10, warmup_share=0.5, schedule_shape=ScheduleShape.WSD, **fields)
