"""Pins say what they keep, once, and a damaged one is never passed over."""

from __future__ import annotations

import pytest

from marin.execution import StepError
from marin.execution.upkeep.pins import add_pin, all_pins, pin_of_run, pin_of_step, pins_over, remove_pin
from marin.storage import Store
from tests.execution.upkeep.forged import Forge, identity_of, run_of

STEP = ("test.a", identity_of("test/a")[:10])


def test_a_pin_is_made_once_and_taken_off_once(store: Store) -> None:
    assert add_pin(store, pin_of_step(STEP, "for the paper"))
    assert not add_pin(store, pin_of_step(STEP, "again"))
    assert add_pin(store, pin_of_run(run_of(1)))
    run, step = all_pins(store)
    assert (run.display, step.display, step.note) == (f"run {run_of(1)}", f"test/a-{STEP[1]}", "for the paper")
    assert remove_pin(store, pin_of_step(STEP))
    assert not remove_pin(store, pin_of_step(STEP))
    assert all_pins(store) == [run]


def test_a_step_is_under_its_own_pin_and_those_of_runs_that_planned_it(store: Store) -> None:
    forge = Forge(store)
    for number, names in enumerate((["test/a", "test/b"], ["test/b"])):
        add_pin(store, pin_of_run(forge.run(run_of(number), names)))
    add_pin(store, pin_of_step(STEP))
    add_pin(store, pin_of_run("20261130T000000-00000000"))  # of which nothing is left
    assert [pin.argument for pin in pins_over(store, STEP)] == [run_of(0), f"test/a-{STEP[1]}"]
    assert [pin.argument for pin in pins_over(store, ("test.b", identity_of("test/b")[:10]))] == [run_of(0), run_of(1)]


@pytest.mark.parametrize("data", [b"", b"[]", b'{"kind": "step"}', b'{"kind": "shelf", "name": "a"}'])
def test_a_damaged_pin_is_named(store: Store, data: bytes) -> None:
    store.create("_pins/step-test.a-0123456789.json", data)
    with pytest.raises(StepError, match=r"_pins/step-test.a-0123456789.json is damaged"):
        all_pins(store)
