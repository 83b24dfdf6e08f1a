from __future__ import annotations

import itertools

import pytest

from marin.tokens.mixture.batches import BatchChange, BatchSchedule, batch_ramp, check_batch_changes, rank_requests

CHANGES = (BatchChange(3, 8), BatchChange(4, 24), BatchChange(9, 16))


def test_the_first_sequence_of_each_step_is_the_sum_of_the_batches_before_it():
    schedule = BatchSchedule(16, CHANGES)
    sizes = [16] * 3 + [8] + [24] * 5 + [16] * 6
    assert [schedule.size(step) for step in range(15)] == sizes
    assert [schedule.first(step) for step in range(16)] == [0, *itertools.accumulate(sizes)]
    assert schedule.sizes == (16, 8, 24, 16)


@pytest.mark.parametrize("ranks", [1, 2, 8])
@pytest.mark.parametrize("largest", [None, 1, 3])
def test_the_ranks_together_read_every_sequence_once_in_order(ranks: int, largest: int | None):
    schedule = BatchSchedule(16, CHANGES)
    read = [list(rank_requests(schedule, 2, 12, rank, ranks, largest)) for rank in range(ranks)]
    places = sorted(place for of_rank in read for first, count in of_rank for place in range(first, first + count))
    assert places == list(range(schedule.first(2), schedule.first(12)))
    for of_rank in read:
        assert [first for first, _ in of_rank] == sorted(first for first, _ in of_rank)
        assert all(count <= (largest or 24) for _, count in of_rank)


def test_a_ramp_rises_evenly_to_its_end():
    changes = batch_ramp(16, 64, 16, 300)
    assert changes == (BatchChange(100, 32), BatchChange(200, 48), BatchChange(300, 64))
    check_batch_changes(changes, 301, "batch_changes")


@pytest.mark.parametrize("arguments", [(16, 64, 0, 300), (16, 64, 20, 300), (64, 16, 16, 300), (16, 64, 16, 2)])
def test_an_impossible_ramp_is_refused(arguments: tuple[int, int, int, int]):
    with pytest.raises(ValueError, match="a ramp from"):
        batch_ramp(*arguments)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ((BatchChange(0, 8),), "a change at step 0"),
        ((BatchChange(5, 8), BatchChange(5, 9)), "a change at step 5; steps ascend, from 6 to 19"),
        ((BatchChange(20, 8),), "a change at step 20"),
        ((BatchChange(5, 0),), "0 sequences from step 5 on"),
    ],
)
def test_impossible_changes_are_refused(changes: tuple[BatchChange, ...], text: str):
    with pytest.raises(ValueError, match=f"batch_changes has {text}"):
        check_batch_changes(changes, 20, "batch_changes")
