"""What a collection would remove, compared with a plain reading of the same rules; and each kind of root and litter."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from marin.execution import StepError, layout, materialise
from marin.execution.upkeep.collect import Collection, Reason, plan_collection
from marin.execution.upkeep.pins import add_pin, pin_of_run, pin_of_step
from marin.execution.upkeep.roots import DAY, HOUR, Rules
from marin.storage import CountedStore, Store, open_store
from tests.execution.graphs import Probe, diamond, leaf, upper
from tests.execution.upkeep.forged import Forge, folder_of, identity_of, random_prefix, run_of


def nothing_is_young() -> Rules:
    """Rules under which age keeps nothing."""
    return Rules(keep=0.0, grace=0.0)


def gone(collection: Collection) -> dict[str, Reason]:
    """Keys that would go, with the reason."""
    return {info.key: reason for _, reason, info in collection.objects()}


def key_of(name: str) -> tuple[str, str]:
    """A step as the index names it."""
    return layout.flat(name), layout.short(identity_of(name))


def planned(*names: str) -> dict[tuple[str, str], str]:
    """Steps as an experiment plans them."""
    return dict.fromkeys(map(key_of, names), "an experiment")


def kept_by_a_plain_reading(store: Store, roots: tuple[str, ...]) -> set[str]:
    """The data and records that must stay: recursion over the records, and every rule by itself."""
    records = {}
    for info in store.list("_steps"):
        if info.key.endswith(".json"):
            records[info.key] = json.loads(store.read(info.key))
    newest: dict[str, str] = {}
    for key, body in records.items():
        current = newest.get(body["identity"])
        if current is None or records[current]["generation"] < body["generation"]:
            newest[body["identity"]] = key
    must: set[str] = set()
    reached: set[str] = set()

    def reach(identity: str) -> None:
        if identity not in reached:
            reached.add(identity)
            if identity in newest:
                follow(newest[identity])

    def follow(key: str) -> None:
        if key in must:
            return
        must.add(key)
        for dependency in records[key]["dependencies"]:
            reach(dependency["identity"])
        for reference in records[key]["result"]["parts"]:
            reach(records[reference["$artifact"]]["identity"])
            follow(reference["$artifact"])

    for name in roots:
        reach(identity_of(name))
    for identity, key in newest.items():
        if "adopted" in records[key]["provenance"]:
            reach(identity)
    buried = {key for key in records if store.exists(key.removesuffix("json") + "tombstone")}
    listed = {file["key"] for key in must - buried for file in records[key]["files"]}
    tombstones = {
        info.key
        for info in store.list("_steps")
        if info.key.endswith(".tombstone") and f"{info.key[:-10]}.json" in must
    }
    resumable = set()
    for identity in reached:
        epoch = records[newest[identity]]["provenance"]["epoch"] if identity in newest else 0
        for info in store.list("test"):
            parts = info.key.split("/")
            if parts[2] == identity[:10] and parts[3] == "state" and int(parts[4]) > epoch:
                resumable.add(info.key)
    claims = {info.key for info in store.list("_claims") if any(identity[:10] in info.key for identity in reached)}
    return must | listed | tombstones | resumable | claims


@pytest.mark.parametrize("seed", range(60))
def test_what_stays_is_what_a_plain_reading_of_the_rules_keeps(store: Store, seed: int) -> None:
    prefix = random_prefix(store, seed)
    everything = {info.key for info in store.list()}
    collection = plan_collection(store, nothing_is_young(), planned(*prefix.roots))
    assert not collection.kept_back
    assert everything - set(gone(collection)) == kept_by_a_plain_reading(store, prefix.roots)


def test_a_dry_run_writes_nothing(store: Store) -> None:
    random_prefix(store, 3)
    before = store.list()
    plan_collection(store, nothing_is_young())
    assert store.list() == before


def test_runs_of_the_last_days_keep_what_they_planned_and_older_ones_go(store: Store) -> None:
    forge = Forge(store)
    young, old = forge.step("test/young"), forge.step("test/old")
    forge.run(run_of(1, age=3 * DAY), ["test/young"])
    forge.run(run_of(2, age=20 * DAY), ["test/old"])
    collection = plan_collection(store, Rules(keep=14 * DAY))
    assert {old.key, *(file.key for file in old.files)} <= set(gone(collection))
    assert young.key not in gone(collection) and young.files[0].key not in gone(collection)
    assert set(collection.runs) == {run_of(2, age=20 * DAY)}


def test_a_run_that_began_long_ago_and_lives_keeps_every_generation_of_its_steps(store: Store) -> None:
    forge = Forge(store)
    first = forge.step("test/a")
    forge.step("test/a", generation=2)
    litter = forge.file(f"{folder_of('test/a')}/a7-00000007/litter")
    forge.run(run_of(1), ["test/a"], finished=False, beat=time.time() - 60)
    assert not gone(plan_collection(store, nothing_is_young()))
    forge.store.put(layout.beat_key(run_of(1)), json.dumps({"time": time.time() - 2 * DAY}).encode())
    assert {first.key, litter.key} <= set(gone(plan_collection(store, nothing_is_young())))


def test_a_run_that_said_its_end_does_not_count_as_live(store: Store) -> None:
    forge = Forge(store)
    record = forge.step("test/a")
    forge.run(run_of(1, age=60.0), ["test/a"], beat=time.time() - 1)
    assert record.key in gone(plan_collection(store, nothing_is_young()))


def test_pins_keep_a_step_and_what_it_was_made_from_or_all_of_a_run(store: Store) -> None:
    forge = Forge(store)
    above = forge.step("test/above")
    pinned = forge.step("test/pinned", above=[above])
    other = forge.step("test/other")
    loose = forge.step("test/loose")
    run = forge.run(run_of(1), ["test/other"])
    add_pin(store, pin_of_step(key_of("test/pinned")))
    add_pin(store, pin_of_run(run))
    found = gone(plan_collection(store, nothing_is_young()))
    assert loose.key in found
    assert not {above.key, pinned.key, other.key} & set(found)
    assert not [key for key in found if key.startswith((f"_runs/{run}", "_pins"))]


def test_a_claim_at_work_keeps_all_of_its_step(store: Store) -> None:
    forge = Forge(store)
    forge.file(f"{folder_of('test/a')}/state/000001/checkpoint")
    run = run_of(5)
    forge.claim("test/a", run=run)
    forge.store.put(layout.beat_key(run), json.dumps({"time": time.time() - HOUR, "pid": 1}).encode())
    collection = plan_collection(store, nothing_is_young())
    assert not [key for key in gone(collection) if key.startswith(("test/", "_claims/"))]
    assert run in collection.kept_back[0]


def test_unfinished_work_that_a_kept_run_planned_stays_and_other_goes_after_the_grace_time(store: Store) -> None:
    forge = Forge(store)
    for name in ("test/wanted", "test/unwanted", "test/fresh"):
        forge.file(f"{folder_of(name)}/state/000001/checkpoint")
        forge.file(f"{folder_of(name)}/a1-00000001/half")
        forge.claim(name, released=True, at=time.time() - (HOUR if name == "test/fresh" else 3 * DAY))
    forge.run(run_of(1, age=5 * DAY), ["test/wanted"])
    found = gone(plan_collection(store, Rules(keep=14 * DAY, grace=DAY)))
    assert found == {
        f"{folder_of('test/wanted')}/a1-00000001/half": Reason.litter,
        f"{folder_of('test/unwanted')}/a1-00000001/half": Reason.abandoned,
        f"{folder_of('test/unwanted')}/state/000001/checkpoint": Reason.abandoned,
        **{
            f"_claims/test.unwanted-{identity_of('test/unwanted')[:10]}/000001.{end}": Reason.abandoned
            for end in ("json", "released")
        },
    }


def test_an_equal_output_that_another_recipe_took_over_keeps_the_files(store: Store) -> None:
    forge = Forge(store)
    first = forge.step("test/first")
    forge.step("test/second", first.files)
    assert set(gone(plan_collection(store, nothing_is_young(), planned("test/second")))) == {first.key}


def test_what_a_tombstone_left_when_it_was_killed_goes_and_the_record_stays(store: Store) -> None:
    forge = Forge(store)
    record = forge.step("test/a")
    forge.tombstone(record)
    assert gone(plan_collection(store, nothing_is_young(), planned("test/a"))) == {record.files[0].key: Reason.litter}


def test_entries_that_lead_to_a_record_go_with_it_and_dangling_ones_by_themselves(store: Store) -> None:
    forge = Forge(store)
    kept, loose = forge.step("test/kept"), forge.step("test/loose")
    buried = forge.step("test/kept_too")
    forge.tombstone(buried)
    for content, key in (("a", kept.key), ("b", loose.key), ("c", "_steps/nothing-0123456789.json"), ("d", buried.key)):
        store.create(layout.content_key(content), json.dumps({"record": key}).encode())
    collection = plan_collection(store, nothing_is_young(), planned("test/kept", "test/kept_too"))
    found = gone(collection)
    assert [key for key in found if key.startswith("_content")] == [
        layout.content_key(content) for content in ("b", "c", "d")
    ]
    (of_loose,) = [removal for removal in collection.removals if removal.name == "test/loose"]
    assert [info.key for _, info in of_loose.content] == [layout.content_key("b")]


def test_what_is_known_of_an_outside_input_stays_while_a_kept_step_reads_its_version(store: Store) -> None:
    forge = Forge(store)
    forge.step("test/kept", config={"crawl": {"version": "CC-2026-40"}})
    forge.step("test/loose", config=[{"version": "CC-2026-41"}])
    for version in ("CC-2026-40", "CC-2026-41"):
        body = {"version": version, "time": "2020-01-01 00:00:00 UTC", "files": []}
        store.create(f"_externals/{version}/x.json", json.dumps(body).encode())
    found = gone(plan_collection(store, nothing_is_young(), planned("test/kept")))
    assert [key for key in found if key.startswith("_externals")] == ["_externals/CC-2026-41/x.json"]


def test_a_damaged_record_that_is_needed_stops_everything_and_one_that_is_not_stays(store: Store) -> None:
    forge = Forge(store)
    above = forge.step("test/above")
    forge.step("test/target", above=[above])
    store.put(above.key, b"{ broken")
    with pytest.raises(StepError, match=r"is damaged.*nothing is collected"):
        plan_collection(store, nothing_is_young(), planned("test/target"))
    collection = plan_collection(store, nothing_is_young())
    assert above.key not in gone(collection) and above.files[0].key not in gone(collection)
    assert "damaged" in collection.kept_back[0]


def test_what_another_collection_removes_meanwhile_is_no_damage(store: Store) -> None:
    class Vanishing(CountedStore):
        def read(self, key: str) -> bytes:
            if key in vanishing:
                self.store.delete(key)
            return super().read(key)

    forge = Forge(store)
    record = forge.step("test/a")
    forge.claim("test/a")
    run = forge.run(run_of(1, age=HOUR), ["test/b"])
    vanishing = {record.key, f"_runs/{run}/events-000001.jsonl", f"_runs/{run}/plan.json"}
    collection = plan_collection(Vanishing(store), nothing_is_young())
    assert not collection.books.damaged
    assert gone(collection)[record.files[0].key] is Reason.abandoned


def test_a_damaged_pin_or_plan_stops_everything(store: Store) -> None:
    store.create("_pins/step-test.a-0123456789.json", b"?")
    with pytest.raises(StepError, match=r"the pin .* is damaged"):
        plan_collection(store, nothing_is_young())
    store.delete("_pins/step-test.a-0123456789.json")
    store.create(f"_runs/{run_of(1, age=HOUR)}/plan.json", b"[]")
    with pytest.raises(StepError, match=r"the plan .* is damaged"):
        plan_collection(store, Rules())


def test_files_that_are_no_steps_are_never_touched(store: Store) -> None:
    for key in ("notes.txt", "raw/crawl/part-0.warc.gz", "_pins_old/x", "documents/mine/part.parquet"):
        store.create(key, b"mine")
    collection = plan_collection(store, nothing_is_young())
    assert not gone(collection)
    assert collection.inventory.others == (4, 16)


def test_a_collection_knows_the_steps_of_real_runs_whatever_their_labels(tmp_path: Path, probe: Probe) -> None:
    prefix = str(tmp_path / "prefix")
    materialise(diamond(probe), prefix)
    materialise(upper(leaf("other", probe).label("with-a-label"), probe), prefix)
    store = open_store(prefix)
    collection = plan_collection(store, nothing_is_young())
    assert set(gone(collection)) == {info.key for info in store.list()}
    assert not gone(plan_collection(store, Rules()))


def test_times_must_not_be_negative() -> None:
    for wrong in (-1.0, float("nan")):
        with pytest.raises(ValueError, match=r"keep is a time"):
            Rules(keep=wrong)
