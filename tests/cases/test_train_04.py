"""Learning-rate schedules with empty, full, overlapping and impossible phases."""

import math

import pytest

from marin.optim.config import Schedule

POSSIBLE = [(10, 2, 8, 0.0), (10, 0, 0, 0.0), (10, 0, 10, 0.1), (10, 10, 0, 0.0), (1, 0, 1, 0.0), (1, 1, 0, 0.0)]
IMPOSSIBLE = [(10, 8, 8), (10, 20, 0), (0, 0, 0), (-1, 0, 0), (10, -1, 0)]


@pytest.mark.parametrize("setting", POSSIBLE, ids=str)
def test_rates_are_finite_reach_the_peak_and_stay_at_the_minimum_after_the_end(setting: tuple[int, int, int, float]):
    total, warmup, decay, minimum = setting
    schedule = Schedule(total, warmup, decay, minimum)
    shares = [schedule.share(step) for step in range(total + 5)]
    assert all(math.isfinite(share) and minimum <= share <= 1 for share in shares)
    assert max(shares) == 1.0
    assert shares[total:] == [minimum] * 5


@pytest.mark.parametrize("setting", IMPOSSIBLE, ids=str)
def test_impossible_settings_are_refused_with_their_numbers(setting: tuple[int, int, int]):
    with pytest.raises(ValueError) as error:
        Schedule(*setting)
    assert any(str(number) in str(error.value) for number in setting)


def test_warm_up_of_two_and_decay_of_eight():
    shares = [Schedule(10, 2, 8).share(step) for step in range(11)]
    assert shares == pytest.approx([0.5, 1.0, 1.0, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8, 0.0])
