"""How often a gang is started again, by what ended it."""

from __future__ import annotations

from marin.execution import FailureClass
from marin.execution.fleet import Restarts
from marin.execution.running.budgets import PAUSE_LIMIT, UNREACHABLE, UNREACHABLE_STARTS, Budgets
from marin.execution.running.worker import Failure


def failure(kind: FailureClass, error: str = "Some", *, expected: bool = False) -> Failure:
    return Failure(kind, error, "it is gone", "", "", expected)


LOST, HUNG = failure(FailureClass.preempted), failure(FailureClass.stalled)
BUG, MISTAKE = failure(FailureClass.error), failure(FailureClass.error, expected=True)


def test_each_way_of_ending_has_a_budget_of_its_own() -> None:
    budgets = Budgets(Restarts(preemptions=3, stalls=2, errors=1))
    assert [budgets.take(LOST) for _ in range(4)] == [True, True, True, False]
    assert [budgets.take(HUNG) for _ in range(3)] == [True, True, False]
    assert [budgets.take(BUG) for _ in range(2)] == [True, False]
    assert not budgets.take(MISTAKE)
    assert not budgets.take(failure(FailureClass.lease))
    assert not budgets.take(failure(FailureClass.cancelled))


def test_a_long_life_fills_the_budgets_and_a_short_one_does_not() -> None:
    budgets = Budgets(Restarts(preemptions=1, refill_seconds=100.0))
    assert budgets.take(LOST)
    budgets.lived(99.0)
    assert not budgets.take(LOST)
    budgets.lived(100.0)
    assert budgets.take(LOST)


def test_pauses_double_up_to_a_minute() -> None:
    budgets = Budgets(Restarts())
    pauses = []
    for _ in range(9):
        budgets.take(LOST)
        pauses.append(budgets.pause())
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert max(pauses) == PAUSE_LIMIT


def test_ranks_that_never_reach_each_other_are_not_tried_for_an_hour() -> None:
    budgets = Budgets(Restarts(preemptions=100))
    silent = failure(FailureClass.preempted, UNREACHABLE)
    assert [budgets.take(silent) for _ in range(UNREACHABLE_STARTS + 1)] == [True] * UNREACHABLE_STARTS + [False]
    assert budgets.take(LOST)


def test_a_budget_that_is_used_up_says_so_and_is_not_filled_by_trying_the_step_again() -> None:
    budgets = Budgets(Restarts(preemptions=1))
    budgets.take(LOST)
    last = budgets.spent_failure(LOST)
    assert (last.kind, last.expected) == (FailureClass.error, True)
    assert last.message.startswith("it is gone; that was the last of 1 restarts after preempted (fleet.restarts)")
    assert budgets.spent_failure(BUG) is BUG  # a budget of 0 is none
