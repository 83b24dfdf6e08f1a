"""Time inside the expert exchange."""

from __future__ import annotations

from tests.training.rank_pool import shared_pool
from tests.training.watch.ranks import exchange_times


def test_a_rank_that_waits_for_a_late_one_waits_inside_the_exchange_in_both_directions() -> None:
    first, late = shared_pool().run(exchange_times, 0.3, 2)
    assert 0.25 < first["forward"] < 3
    assert 0.25 < first["backward"] < 3
    assert late["forward"] < 0.25
    assert late["backward"] < 0.25
    for rank in (first, late):
        assert (rank["entered"], rank["left"], rank["last"]) == (3, 3, "dispatch, backward")
        assert rank["gradient"] == [[1.0] * 3] * 4
