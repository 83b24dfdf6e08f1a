"""Carrying a collection out: nothing kept goes, every moment is a good one to die, and runs may go on beside."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from marin.execution import Action, StepError, layout, make_plan, materialise
from marin.execution.planning.index import list_records
from marin.execution.upkeep import sweep as sweeping
from marin.execution.upkeep.collect import plan_collection
from marin.execution.upkeep.custody import Custodian
from marin.execution.upkeep.pins import add_pin, pin_of_step
from marin.execution.upkeep.removal import remove_empty_folders
from marin.execution.upkeep.roots import DAY, Rules
from marin.execution.upkeep.sweep import sweep
from marin.execution.upkeep.verify import verify_steps
from marin.storage import CountedStore, ObjectInfo, Store, StoreError, open_store
from tests.execution.graphs import Probe, diamond, executions, joined, leaf, upper
from tests.execution.upkeep.forged import Forge, folder_of, identity_of, random_prefix, run_of


class Killed(BaseException):
    """The process of the collection ended here."""


class Mortal(CountedStore):
    """A store whose user dies before one of its deletions."""

    def __init__(self, store: Store, deletions: int) -> None:
        super().__init__(store)
        self.left = deletions
        self._deleting = threading.Lock()

    def delete(self, key: str) -> None:
        with self._deleting:
            if self.left == 0:
                raise Killed(key)
            self.left -= 1
            super().delete(key)


def nothing_is_young() -> Rules:
    """Rules under which age keeps nothing."""
    return Rules(keep=0.0, grace=0.0)


def key_of(name: str) -> tuple[str, str]:
    """A step as the index names it."""
    return layout.flat(name), layout.short(identity_of(name))


def planned(*names: str) -> dict[tuple[str, str], str]:
    """Steps as an experiment plans them."""
    return dict.fromkeys(map(key_of, names), "an experiment")


def assert_whole(store: Store) -> None:
    """Every record has its files, unless it has a tombstone, and what its result refers to."""
    keys = {info.key for info in store.list()}
    for key in [key for key in keys if key.startswith("_steps/") and key.endswith(".json")]:
        if f"{key.removesuffix('.json')}.tombstone" in keys:
            continue
        body = json.loads(store.read(key))
        missing = {file["key"] for file in body["files"]} - keys
        assert not missing, f"{key} lost {missing}"
        for reference in body["result"]["parts"]:
            assert reference["$artifact"] in keys, f"{key} refers to {reference['$artifact']}, which is gone"


def copied(store: Store, place: str) -> Store:
    """The same objects in another place."""
    other = open_store(f"memory://{place}")
    for info in store.list():
        other.create(info.key, store.read(info.key))
    return other


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "SETTLE_SECONDS", 0.0)


@pytest.mark.parametrize("seed", range(20))
def test_what_was_planned_goes_and_nothing_else(store: Store, seed: int) -> None:
    prefix = random_prefix(store, seed)
    before = {info.key for info in store.list()}
    collection = plan_collection(store, nothing_is_young(), planned(*prefix.roots))
    doomed = {info.key for _, _, info in collection.objects()}
    swept = sweep(store, collection)
    assert not swept.failed and not swept.kept_back
    assert {info.key for info in store.list()} == before - doomed
    assert swept.objects == len(doomed)
    assert not list(plan_collection(store, nothing_is_young(), planned(*prefix.roots)).objects())


def without_claims(store: Store) -> set[str]:
    """Keys, but for those that tell who was at work."""
    return {info.key for info in store.list() if not info.key.startswith(("_claims/", "_runs/"))}


@pytest.mark.parametrize("seed", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_a_kill_before_any_deletion_leaves_no_record_without_its_files(seed: int, store: Store) -> None:
    prefix = random_prefix(store, seed, steps=6)
    for number, info in enumerate(store.list("_steps")):
        if info.key.endswith(".json"):
            store.create(layout.content_key(f"{number}"), json.dumps({"record": info.key}).encode())
    roots = planned(*prefix.roots[:1])
    total = sum(1 for _ in plan_collection(store, nothing_is_young(), roots).objects())
    assert total > 20
    undisturbed = copied(store, f"{id(store)}-undisturbed")
    sweep(undisturbed, plan_collection(undisturbed, nothing_is_young(), roots))
    for deletions in range(total):
        place = copied(store, f"{id(store)}-{deletions}")
        with pytest.raises(Killed):
            sweep(Mortal(place, deletions), plan_collection(place, nothing_is_young(), roots))
        assert_whole(place)
        sweep(place, plan_collection(place, nothing_is_young(), roots))
        assert_whole(place)
        assert without_claims(place) == without_claims(undisturbed)


def test_a_step_that_another_host_has_stays_and_so_does_what_it_refers_to(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "SILENCE_SECONDS", 0.0)
    forge = Forge(store)
    referred = forge.step("test/referred")
    target = forge.step("test/target", refers_to=[referred])
    run = run_of(3)
    forge.claim("test/target", generation=2, run=run)  # silent for years by its clock, which may be wrong
    collection = plan_collection(store, nothing_is_young())
    assert len(collection.removals) == 2
    swept = sweep(store, collection)
    keys = {info.key for info in store.list()}
    assert {referred.key, target.key, referred.files[0].key, target.files[0].key} <= keys
    assert any("test/target" in text for text in swept.kept_back)


def test_a_holder_that_stays_silent_is_taken_over(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "SILENCE_SECONDS", 1.0)
    forge = Forge(store)
    target = forge.step("test/target")
    forge.claim("test/target", generation=2, run=run_of(3))
    collection = plan_collection(store, nothing_is_young())
    with Custodian(store, stale_after=0.2) as custodian:
        work = sweeping.Sweep(store, collection, custodian)
        work.run()
    assert not work.swept.kept_back
    assert not store.exists(target.key) and not store.exists(target.files[0].key)


def test_a_step_that_was_made_again_meanwhile_stays(store: Store) -> None:
    forge = Forge(store)
    forge.step("test/a")
    collection = plan_collection(store, nothing_is_young())
    again = forge.step("test/a", generation=2)
    swept = sweep(store, collection)
    assert "made again" in swept.kept_back[0]
    assert store.exists(again.key) and store.exists(again.files[0].key)


def test_a_run_that_began_and_a_pin_that_was_set_after_the_look_keep_what_they_need(store: Store) -> None:
    forge = Forge(store)
    above = forge.step("test/above")
    steps = [forge.step("test/a", above=[above]), forge.step("test/b")]
    loose = forge.step("test/loose")
    collection = plan_collection(store, nothing_is_young())
    forge.run(run_of(7, age=1.0), ["test/a"], finished=False)
    add_pin(store, pin_of_step(key_of("test/b")))
    swept = sweep(store, collection)
    assert len(swept.kept_back) == 3
    for record in (above, *steps):
        assert store.exists(record.key) and store.exists(record.files[0].key)
    assert not store.exists(loose.key)


def test_an_equal_output_that_is_taken_over_meanwhile_keeps_its_files(store: Store) -> None:
    forge = Forge(store)
    first = forge.step("test/first")
    collection = plan_collection(store, nothing_is_young())
    alias = forge.step("test/second", first.files)
    sweep(store, collection)
    assert not store.exists(first.key)
    assert store.exists(alias.key) and store.exists(first.files[0].key)


def test_a_claim_that_appeared_on_a_kept_step_keeps_its_litter(store: Store) -> None:
    forge = Forge(store)
    forge.step("test/a")
    litter = forge.file(f"{folder_of('test/a')}/a2-00000009/part")
    collection = plan_collection(store, nothing_is_young(), planned("test/a"))
    forge.claim("test/a", generation=2)
    swept = sweep(store, collection)
    assert store.exists(litter.key) and "a run has come" in swept.kept_back[0]


def test_what_cannot_be_removed_is_named_and_the_files_of_a_record_that_stays_stay(store: Store) -> None:
    class Stubborn(CountedStore):
        def delete(self, key: str) -> None:
            if key == stubborn:
                raise StoreError("the server says no")
            super().delete(key)

    forge = Forge(store)
    record, other = forge.step("test/a"), forge.step("test/b")
    stubborn = record.key
    swept = sweep(Stubborn(store), plan_collection(store, nothing_is_young()))
    assert swept.failed == [f"{store.url_of(record.key)}: the server says no"]
    assert store.exists(record.key) and store.exists(record.files[0].key)
    assert not store.exists(other.key) and not store.exists(other.files[0].key)


def test_claims_that_are_young_stay_so_that_epochs_go_on_counting(store: Store) -> None:
    forge = Forge(store)
    record = forge.step("test/a")
    forge.claim("test/a", at=time.time() - 60)
    sweep(store, plan_collection(store, Rules(keep=0.0, grace=DAY)))
    assert not store.exists(record.key)
    folder = layout.claim_folder("test/a", record.identity)
    names = [info.key.removeprefix(f"{folder}/") for info in store.list(folder)]
    assert names == ["000001.json", "000002.json", "000002.released"]


def test_a_graph_runs_again_after_its_steps_were_collected(tmp_path: Path, probe: Probe) -> None:
    prefix = str(tmp_path / "prefix")
    first = materialise(diamond(probe), prefix)
    store = open_store(prefix)
    sweep(store, plan_collection(store, nothing_is_young()))
    assert not store.list()
    assert not [path for path in (tmp_path / "prefix").rglob("*") if path.name not in ("_steps", "_tmp", "_probe")]
    assert materialise(diamond(probe), prefix) == first
    assert executions(probe.tally, "joined") == 2


def test_collecting_what_an_experiment_does_not_plan_leaves_it_cached(tmp_path: Path, probe: Probe) -> None:
    prefix = str(tmp_path / "prefix")
    materialise(upper(leaf("kept", probe), probe), prefix)
    materialise(diamond(probe), prefix)
    store = open_store(prefix)
    plan = make_plan([upper(leaf("kept", probe), probe)], store)
    roots = {(layout.flat(step.name), layout.short(step.identity)): "" for step in plan.steps}
    sweep(store, plan_collection(store, nothing_is_young(), roots))
    again = make_plan([upper(leaf("kept", probe), probe)], store)
    assert [step.action for step in again.steps] == [Action.cached, Action.cached]
    assert again.steps[0].store is None
    assert len(store.list("_steps")) == 2
    assert materialise(upper(leaf("kept", probe), probe), prefix).read("text.txt") == b"KEPT"


def test_a_run_waits_for_a_step_that_is_being_collected_and_then_makes_it(tmp_path: Path, probe: Probe) -> None:
    prefix = str(tmp_path / "prefix")
    materialise(leaf("a", probe), prefix)
    store = open_store(prefix)
    collection = plan_collection(store, nothing_is_young())
    made: list[Any] = []
    reached, go_on = threading.Event(), threading.Event()

    class Slow(CountedStore):
        def delete(self, key: str) -> None:
            if key.endswith("text.txt"):
                reached.set()
                assert go_on.wait(20)
            super().delete(key)

    collector = threading.Thread(target=lambda: sweep(Slow(store), collection))
    collector.start()
    assert reached.wait(20)
    runner = threading.Thread(target=lambda: made.append(materialise(leaf("a", probe), prefix)))
    runner.start()
    time.sleep(1.5)
    assert not made and executions(probe.tally, "leaf-a") == 1
    go_on.set()
    collector.join(30)
    runner.join(30)
    assert made[0].read("text.txt") == b"a"
    assert executions(probe.tally, "leaf-a") == 2


def test_collections_beside_runs_never_leave_a_record_without_its_files(tmp_path: Path) -> None:
    prefix = str(tmp_path / "prefix")
    until = time.monotonic() + 4.0
    surprises: list[str] = []
    made = collected = 0

    def drive(seed: int) -> None:
        nonlocal made
        draw = random.Random(seed)
        while time.monotonic() < until:
            target = joined(tuple(upper(leaf(f"t{draw.randrange(3)}")) for _ in range(2)))
            try:
                materialise(target, prefix)
                made += 1
            except StepError as error:  # planned just before what it needs went: the next call makes it
                if "there is no record" not in str(error):
                    surprises.append(str(error))

    def collect() -> None:
        nonlocal collected
        while time.monotonic() < until:
            store = open_store(prefix)
            try:
                swept = sweep(store, plan_collection(store, nothing_is_young()))
            except Exception as error:
                surprises.append(f"{type(error).__name__}: {error}")
                raise
            collected += swept.objects
            surprises.extend(swept.failed)

    threads = [threading.Thread(target=drive, args=(1,)), threading.Thread(target=drive, args=(2,))]
    threads.append(threading.Thread(target=collect))
    for thread in threads:
        thread.start()
    store = open_store(prefix)
    while any(thread.is_alive() for thread in threads):
        keys = [layout.record_key(*step, generation) for step, generation in list_records(store).generations.items()]
        damage = verify_steps(store, keys)
        surprises += [f"{key}: {text}" for key, text in damage.items() if store.exists(key)]
        time.sleep(0.1)
    assert not surprises
    assert made > 3 and collected > 10


@pytest.mark.parametrize("call", ["link", "replace"])
def test_a_folder_that_goes_just_before_a_write_is_made_again(
    tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path / "prefix")
    act = getattr(os, call)
    times = 0

    def cleaned_first(source: Path, target: Path) -> None:
        nonlocal times
        times += 1
        if times <= 3:
            remove_empty_folders(store, ["a/b/c"])
            assert not (tmp_path / "prefix" / "a").exists()
        act(source, target)

    monkeypatch.setattr(os, call, cleaned_first)
    if call == "link":
        store.create("a/b/c/x", b"x")
    else:
        with store.writer("a/b/c/x") as stream:
            stream.write(b"x")
    assert times == 4 and store.read("a/b/c/x") == b"x"


def test_a_level_comes_before_what_its_results_refer_to(store: Store) -> None:
    forge = Forge(store)
    bottom = forge.step("test/bottom")
    middle = forge.step("test/middle", refers_to=[bottom])
    forge.step("test/top", refers_to=[middle, bottom])
    levels = sweeping.in_order(plan_collection(store, nothing_is_young()))
    assert [[removal.name for removal in level] for level in levels] == [["test/top"], ["test/middle"], ["test/bottom"]]


def test_a_folder_of_a_step_is_found_with_and_without_a_label() -> None:
    from marin.execution.upkeep.collect import Reason, Removal

    for folder in ("data/part/0123456789", "data/part/web-0123456789"):
        removal = Removal(("data.part", "0123456789"), 1, 1)
        removal.data = [
            (Reason.litter, ObjectInfo(f"{folder}/a1-00/x", 1)),
            (Reason.litter, ObjectInfo(f"{folder}/state/000001/y/z", 1)),
        ]
        assert sweeping.folders_of(removal) == {f"{folder}/a1-00", f"{folder}/state/000001"}
        removal.data = [(Reason.abandoned, ObjectInfo(f"{folder}/a1-00/x", 1))]
        assert sweeping.folders_of(removal) == {folder}
