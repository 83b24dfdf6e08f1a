"""A step of another prefix comes here whole or not at all, goes on after a kill, and answers like one made here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from marin.execution import Action, StepError, make_plan, materialise
from marin.execution.records import Record, load_record
from marin.execution.running.claims import Claims
from marin.execution.upkeep.copying import carry_out_copy, plan_copy
from marin.execution.upkeep.tombstones import bury, plan_tombstone
from marin.execution.upkeep.verify import damage_of
from marin.storage import ChecksummedWriter, CountedStore, Store, open_store
from tests.execution.graphs import MapConfig, Probe, executions, joined, leaf, squares, upper
from tests.execution.upkeep.forged import Forge, folder_of, run_of


@pytest.fixture
def other(tmp_path: Path) -> Store:
    """The prefix that is copied from."""
    return open_store(tmp_path / "other")


def record_of(store: Store, name: str) -> Record:
    """The one record of a step's name."""
    (key,) = (info.key for info in store.list("_steps") if info.key.startswith(f"_steps/{name.replace('/', '.')}-"))
    return load_record(store, key)


def copy(source: Store, target: Store, record: Record) -> list[Record]:
    """Copy a record."""
    return carry_out_copy(plan_copy(source, target, record))


def test_a_copied_step_is_cached_here_and_its_upstream_is_not_needed(
    other: Store, local_store: Store, probe: Probe
) -> None:
    materialise(upper(leaf("a", probe), probe), other.url)
    (made,) = copy(other, local_store, record_of(other, "test/upper"))
    assert made.provenance["copied_from"] == other.url
    assert made.output_digest == record_of(other, "test/upper").output_digest
    assert damage_of(local_store, load_record(local_store, made.key), digests=True) == []
    plan = make_plan([upper(leaf("a", probe), probe)], local_store)
    assert [step.action for step in plan.steps] == [Action.unneeded, Action.cached]
    assert materialise(upper(leaf("a", probe), probe), local_store.url).read("text.txt") == b"A"
    assert executions(probe.tally, "leaf-a") == 1


def test_files_in_the_state_of_the_other_prefix_come_into_the_attempts_folder(
    other: Store, local_store: Store, probe: Probe
) -> None:
    target = squares("x", MapConfig(shards=3), probe)
    first = materialise(target, other.url)
    record = record_of(other, "test/squares")
    assert any("/state/" in file.key for file in record.files)
    (made,) = copy(other, local_store, record)
    assert all(file.key == f"{made.path}/{file.name}" for file in made.files)
    again = materialise(target, local_store.url)
    assert {name: again.read(name) for name in again.names()} == {name: first.read(name) for name in first.names()}


def test_what_a_result_refers_to_comes_along_and_is_found_here(other: Store, local_store: Store) -> None:
    forge = Forge(other)
    bottom = forge.step("test/bottom")
    middle = forge.step("test/middle", refers_to=[bottom])
    top = forge.step("test/top", refers_to=[middle, bottom], above=[forge.step("test/above")])
    plan = plan_copy(other, local_store, top)
    assert [step.record.name for step in plan.steps] == ["test/bottom", "test/middle", "test/top"]
    assert (plan.files, plan.size) == (3, bottom.size + middle.size + top.size)
    made = {record.name: record for record in carry_out_copy(plan)}
    assert made["test/top"].result == {
        "parts": [{"$artifact": made["test/middle"].key}, {"$artifact": made["test/bottom"].key}]
    }
    assert len(local_store.list("_steps")) == 3


def test_references_lead_to_an_equal_step_that_is_here_already_and_to_no_other(
    other: Store, local_store: Store
) -> None:
    forge, here = Forge(other), Forge(local_store)
    bottom = forge.step("test/bottom")
    top = forge.step("test/top", refers_to=[bottom])
    here.step("test/bottom", [here.file("x/other", b"other")])
    with pytest.raises(StepError, match="has another output"):
        plan_copy(other, local_store, top)
    again = here.step("test/bottom", [here.file(file.key, b"test/bottom") for file in bottom.files], generation=2)
    (made,) = copy(other, local_store, top)
    assert made.result == {"parts": [{"$artifact": again.key}]}


def test_a_step_that_answers_here_is_not_copied_and_one_without_bytes_is_copied_as_the_next_generation(
    other: Store, local_store: Store, probe: Probe
) -> None:
    for store in (other, local_store):
        materialise(leaf("a", probe), store.url)
    record = record_of(other, "test/leaf")
    assert plan_copy(other, local_store, record).steps == ()
    bury(local_store, plan_tombstone(local_store, record_of(local_store, "test/leaf")))
    (made,) = copy(other, local_store, record)
    assert made.generation == 2 and local_store.read(made.files[0].key) == b"a"
    fresh = joined((leaf("a", probe),), probe)
    assert [step.action for step in make_plan([fresh], local_store).steps] == [Action.cached, Action.run]


def test_a_step_without_bytes_cannot_be_copied(other: Store, local_store: Store) -> None:
    record = Forge(other).step("test/a")
    Forge(other).tombstone(record)
    with pytest.raises(StepError, match=r"no bytes in .* any more \(tombstone\)"):
        plan_copy(other, local_store, record)


def test_a_damaged_file_of_the_other_prefix_is_named_and_leaves_no_record(other: Store, local_store: Store) -> None:
    forge = Forge(other)
    record = forge.step("test/a", [forge.file("x/a", b"good"), forge.file("x/b", b"good")])
    other.put("x/b", b"baad")
    with pytest.raises(StepError, match=r"x/b is not what its record says.*marin verify"):
        copy(other, local_store, record)
    assert not local_store.list("_steps")
    assert not [info for info in local_store.list("test") if info.key.endswith("/b")]


def test_a_copy_that_was_cut_short_goes_on_with_the_files_that_are_not_whole(other: Store, local_store: Store) -> None:
    class Cut(CountedStore):
        written = 0

        def writer(self, key: str) -> ChecksummedWriter:
            if Cut.written == 4:
                raise KeyboardInterrupt
            Cut.written += 1
            return super().writer(key)

    forge = Forge(other)
    files = [forge.file(f"{folder_of('test/a')}/a1-00000001/{number}", b"%d" % number) for number in range(12)]
    record = forge.step("test/a", files)
    with pytest.raises(KeyboardInterrupt):
        carry_out_copy(plan_copy(other, Cut(local_store), record))
    assert not local_store.list("_steps")
    there = [info.key for info in local_store.list("test")]
    assert 0 < len(there) <= 4
    local_store.put(there[0], b"?")  # as long, and something else
    counted = CountedStore(local_store)
    (made,) = copy(other, counted, record)
    assert counted.requests["PUT"] - 2 == 12 - len(there) + 1  # two heartbeats; what was missing, and what was wrong
    assert damage_of(local_store, made, digests=True) == []


def test_a_step_that_a_live_run_makes_here_is_not_copied(other: Store, local_store: Store) -> None:
    record = Forge(other).step("test/a")
    run = run_of(8, age=1.0)
    Claims(local_store, run, 90.0).take("test/a", record.identity, 1, folder_of("test/a"))
    with pytest.raises(StepError, match=f"is held by run {run}"):
        copy(other, local_store, record)


def test_an_adopted_step_is_a_copy_where_it_was_copied_to(other: Store, local_store: Store) -> None:
    record = Forge(other).step("test/a", adopted=True)
    by_reference = replace(record, provenance={**record.provenance, "adopted": {"path": "/raw", "by": "reference"}})
    other.put(record.key, by_reference.to_json())
    (made,) = copy(other, local_store, load_record(other, record.key))
    assert made.provenance["adopted"]["by"] == "copy"
    plan_tombstone(local_store, made)
