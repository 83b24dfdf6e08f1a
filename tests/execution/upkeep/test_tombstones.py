"""Bytes go and the record stays; what others list stays too; a kill anywhere is mended by the same call again."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from marin.execution import Action, StepError, layout, make_plan, materialise
from marin.execution.records import Record, load_record
from marin.execution.running.claims import Claims
from marin.execution.upkeep.pins import add_pin, pin_of_run, pin_of_step
from marin.execution.upkeep.tombstones import bury, plan_tombstone
from marin.storage import CountedStore, Store, StoreError, open_store
from tests.execution.graphs import Probe, executions, joined, leaf, upper
from tests.execution.upkeep.forged import Forge, folder_of, run_of


def key_of(record: Record) -> tuple[str, str]:
    """A step as the index names it."""
    return layout.flat(record.name), layout.short(record.identity)


def tombstone_of(record: Record) -> str:
    """The key of a record's tombstone."""
    return layout.tombstone_key(record.name, record.identity, record.generation)


def test_bytes_go_with_the_litter_and_the_record_and_its_consumers_stay(store: Store) -> None:
    forge = Forge(store)
    record = forge.step("test/a")
    litter = [forge.file(f"{folder_of('test/a')}/{place}") for place in ("a7-00000007/x", "state/000001/y")]
    consumer = forge.step("test/b", above=[record])
    forge.step("test/c", refers_to=[record])
    other = forge.file("test/unrelated")
    burial = plan_tombstone(store, record)
    assert {info.key for info in burial.objects} == {record.files[0].key, *(file.key for file in litter)}
    assert [name.partition("-")[0] for name in burial.consumers] == ["test/b", "test/c"]
    before = {info.key for info in store.list()}
    assert bury(store, burial, "too big") == []
    after = {info.key for info in store.list()}
    assert before - after == {info.key for info in burial.objects}
    body = json.loads(store.read(tombstone_of(record)))
    assert (body["record"], body["objects"], body["note"]) == (record.key, 3, "too big")
    assert load_record(store, consumer.key) == consumer and store.exists(other.key)


def test_what_another_record_lists_stays(store: Store) -> None:
    forge = Forge(store)
    own = forge.file(f"{folder_of('test/a')}/a1-00000001/own")
    shared = forge.file(f"{folder_of('test/a')}/a1-00000001/shared")
    record = forge.step("test/a", [own, shared])
    forge.step("test/alias", [shared])
    earlier = forge.step("test/z", [own])
    forge.tombstone(earlier)  # lists it in vain: its bytes were given up
    burial = plan_tombstone(store, record)
    bury(store, burial)
    assert burial.shared == shared.size
    assert store.exists(shared.key) and not store.exists(own.key)


def test_a_step_without_bytes_is_made_again_only_when_something_needs_it(tmp_path: Path, probe: Probe) -> None:
    prefix = str(tmp_path / "prefix")
    materialise(upper(leaf("a", probe), probe), prefix)
    store = open_store(prefix)
    record = load_record(store, next(info.key for info in store.list("_steps/") if "leaf" in info.key))
    assert bury(store, plan_tombstone(store, record)) == []
    assert not [path for path in (tmp_path / "prefix" / "test").rglob("*") if "leaf" in str(path)]
    assert materialise(upper(leaf("a", probe), probe), prefix).read("text.txt") == b"A"
    assert executions(probe.tally, "leaf-a") == 1

    assert materialise(joined((leaf("a", probe),), probe), prefix).text == "a"
    assert executions(probe.tally, "leaf-a") == 2
    plan = make_plan([upper(leaf("a", probe), probe)], store)
    assert all(step.action is Action.cached for step in plan.steps)


def test_a_reader_is_told_that_the_bytes_were_removed_and_how_to_have_them(store: Store) -> None:
    artifact = materialise(leaf("a"), store.url)
    record = load_record(store, store.list("_steps")[0].key)
    bury(store, plan_tombstone(store, record))
    for read in (artifact.open, artifact.read, artifact.local):
        with pytest.raises(StepError, match=r"removed on purpose \(tombstone\).*--force '\^test/leaf\$'"):
            read("text.txt")


def test_a_kill_before_any_deletion_is_mended_by_the_same_call_again(store: Store) -> None:
    class Killed(BaseException):
        pass

    class Mortal(CountedStore):
        left = 0

        def delete(self, key: str) -> None:
            with lock:
                if self.left == 0:
                    raise Killed
                self.left -= 1
                super().delete(key)

    lock = threading.Lock()
    for deletions in range(6):
        name = f"test/a{deletions}"
        forge = Forge(store)
        record = forge.step(name, [forge.file(f"{folder_of(name)}/a1-00000001/{number}") for number in range(6)])
        mortal = Mortal(store)
        mortal.left = deletions
        with pytest.raises(Killed):
            bury(mortal, plan_tombstone(store, record))
        assert store.exists(tombstone_of(record))
        again = plan_tombstone(store, record)
        assert again.is_begun and len(again.objects) == 6 - deletions
        assert bury(store, again) == []
        assert not store.list(folder_of(name))


def test_what_cannot_be_removed_is_named(store: Store) -> None:
    class Stubborn(CountedStore):
        def delete(self, key: str) -> None:
            if key == record.files[0].key:
                raise StoreError("the server says no")
            super().delete(key)

    record = Forge(store).step("test/a")
    assert bury(Stubborn(store), plan_tombstone(store, record)) == [
        f"{store.url_of(record.files[0].key)}: the server says no"
    ]


def test_a_pinned_step_and_one_of_a_pinned_run_are_refused_naming_the_pin(store: Store) -> None:
    forge = Forge(store)
    record = forge.step("test/a")
    add_pin(store, pin_of_step(key_of(record), "the paper"))
    with pytest.raises(StepError, match=rf"the paper\).*marin unpin test/a-{key_of(record)[1]}"):
        plan_tombstone(store, record)
    other = forge.step("test/b")
    add_pin(store, pin_of_run(forge.run(run_of(4), ["test/b"])))
    with pytest.raises(StepError, match=f"marin unpin {run_of(4)}"):
        plan_tombstone(store, other)


def test_a_step_that_a_live_run_holds_is_refused_naming_the_run(store: Store) -> None:
    record = Forge(store).step("test/a")
    run = run_of(8, age=1.0)
    Claims(store, run, 90.0).take("test/a", record.identity, 2, folder_of("test/a"))
    with pytest.raises(StepError, match=f"is held by run {run}"):
        bury(store, plan_tombstone(store, record))
    assert store.exists(record.files[0].key) and not store.exists(tombstone_of(record))


def test_a_step_that_was_made_again_meanwhile_and_an_earlier_generation_are_refused(store: Store) -> None:
    forge = Forge(store)
    record = forge.step("test/a")
    burial = plan_tombstone(store, record)
    forge.step("test/a", generation=2)
    with pytest.raises(StepError, match="made again meanwhile"):
        bury(store, burial)
    with pytest.raises(StepError, match="earlier generation 1 than 2"):
        plan_tombstone(store, record)


def test_a_damaged_record_elsewhere_stops_it_since_its_files_are_not_known(store: Store) -> None:
    forge = Forge(store)
    record = forge.step("test/a")
    store.put(forge.step("test/b").key, b"?")
    with pytest.raises(StepError, match=r"is damaged.*none is removed"):
        plan_tombstone(store, record)
