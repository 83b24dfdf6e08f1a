"""A step is meant by its name, label or id, with or without a generation; what is not clear is refused."""

from __future__ import annotations

import pytest

from marin.execution import Artifact, Runner, RunOptions, StepError, make_plan
from marin.execution.planning.index import list_records
from marin.execution.reasons.selection import find_record, find_unfinished
from marin.execution.records import Record
from marin.execution.running.inline import InlineBackend
from marin.storage import CountedStore, Store
from tests.execution.graphs import failing, leaf, upper


def run(target: Artifact, store: Store, force: str | None = None) -> str:
    """Run a graph; returns the identity of its target."""
    plan = make_plan([target], store, force=force)
    Runner(store, plan, RunOptions(), InlineBackend).run()
    return plan.targets[0].identity


@pytest.fixture
def identities(store: Store) -> list[str]:
    return [run(leaf("a").label("web"), store), run(leaf("b").label("news"), store), run(upper(leaf("a")), store)]


def test_every_way_to_say_a_step_finds_it(store: Store, identities: list[str]) -> None:
    web = identities[0]
    for text in (
        f"test/leaf-{web[:10]}",
        f"test.leaf-{web[:10]}",
        f"test/leaf-{web[:10]} (web)",
        f"test/leaf-{web[:4]}",
        web[:6],
        "web",
        "test/leaf/web",
        "test/leaf/web@1",
    ):
        assert find_record(store, text).identity == web, text
    assert find_record(store, "test/upper").identity == identities[2]


def test_a_generation_is_asked_for_with_its_number(store: Store, identities: list[str]) -> None:
    run(upper(leaf("a")), store, force="upper")
    found: list[Record] = [find_record(store, f"test/upper{at}") for at in ("", "@1", "@2")]
    assert [record.generation for record in found] == [2, 1, 2]
    with pytest.raises(StepError, match=r"test/upper-[0-9a-f]{10} has 2 generation\(s\), so there is no 3"):
        find_record(store, "test/upper@3")
    with pytest.raises(StepError, match="what follows @ is a generation"):
        find_record(store, "test/upper@newest")


def test_what_is_none_or_many_is_refused_with_the_ways_out(store: Store, identities: list[str]) -> None:
    with pytest.raises(StepError, match="has no step 'test/lef'; steps there: test/leaf, test/upper"):
        find_record(store, "test/lef")
    with pytest.raises(StepError, match=r"'test/leaf' is 2 steps: test/leaf-.* \((web|news)\), test/leaf-.*"):
        find_record(store, "test/leaf")


def test_many_steps_of_a_name_are_named_without_reading_them_all(store: Store) -> None:
    for number in range(30):
        run(leaf(str(number)), store)
    counted = CountedStore(store)
    with pytest.raises(StepError, match=r"is 30 steps: .* and 18 more"):
        find_record(counted, "test/leaf")
    assert counted.requests["GET"] == 12


def test_an_id_that_is_another_names_is_not_taken_for_it(store: Store, identities: list[str]) -> None:
    with pytest.raises(StepError, match="no step"):
        find_record(store, f"test/upper-{identities[0][:10]}")


def test_a_step_that_failed_is_found_with_the_run_that_planned_it(store: Store) -> None:
    identity = run(upper(failing("bug").label("odd")), store)
    index = list_records(store)
    (failed,) = find_unfinished(store, "test/failing", index)
    assert failed.display.endswith(" (odd)")
    assert failed.run is not None
    assert [one.short for one in find_unfinished(store, "odd", index)] == [failed.short]
    (blocked,) = find_unfinished(store, identity[:10], index)
    assert (blocked.name, blocked.run) == ("test/upper", failed.run)
    for info in store.list("_runs"):
        store.delete(info.key)
    (bare,) = find_unfinished(store, "test/failing", index)
    assert (bare.short, bare.entry) == (failed.short, None)
