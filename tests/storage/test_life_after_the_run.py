"""What checks, removes and brings in finished steps does the same on every store."""

from __future__ import annotations

import uuid

import pytest

from marin.execution import materialise
from marin.execution.planning.index import list_records
from marin.execution.records import load_record
from marin.execution.upkeep import sweep as sweeping
from marin.execution.upkeep.adoption import Adoption, adopt, find_files
from marin.execution.upkeep.collect import plan_collection
from marin.execution.upkeep.copying import carry_out_copy, plan_copy
from marin.execution.upkeep.pins import add_pin, all_pins, pin_of_step, remove_pin
from marin.execution.upkeep.roots import Rules
from marin.execution.upkeep.sweep import sweep
from marin.execution.upkeep.tombstones import bury, plan_tombstone
from marin.execution.upkeep.verify import verify_steps
from marin.storage import Store, open_store
from tests.execution.graphs import Text, joined, leaf, upper
from tests.execution.upkeep.forged import random_prefix


def keys(store: Store) -> list[str]:
    """The keys of all records."""
    return [info.key for info in store.list("_steps") if info.key.endswith(".json")]


def test_a_step_is_verified_pinned_copied_buried_and_made_again(store: Store) -> None:
    materialise(upper(leaf("a")), store.url)
    assert verify_steps(store, keys(store)) == {}
    leaf_key, upper_key = keys(store)
    record = load_record(store, upper_key)
    elsewhere = open_store(f"memory://{uuid.uuid4().hex}")
    (made,) = carry_out_copy(plan_copy(store, elsewhere, record))
    assert verify_steps(elsewhere, [made.key]) == {}
    back = open_store(f"{store.url}-copy")
    carry_out_copy(plan_copy(elsewhere, back, made))
    assert verify_steps(back, keys(back)) == {}
    pin = pin_of_step(("test.leaf", leaf_key.rpartition("-")[2][:10]))
    assert add_pin(store, pin) and not add_pin(store, pin) and all_pins(store) == [pin] and remove_pin(store, pin)
    assert bury(store, plan_tombstone(store, load_record(store, leaf_key))) == []
    assert not store.list("test/leaf") and len(list_records(store).tombstones) == 1
    assert materialise(joined((leaf("a"),)), store.url).text == "a"
    assert store.exists(f"{leaf_key.removesuffix('.json')}.r2.json")


def test_files_of_each_store_are_adopted_in_place_and_by_copy(store: Store) -> None:
    store.create("raw/my texts/text.txt", b"mine")
    wanted = Adoption("test/mine", "1", Text, {"text": "mine"})
    record, _ = adopt(store, find_files(store, f"{store.url}/raw"), wanted)
    assert [file.key for file in record.files] == ["raw/my texts/text.txt"]
    elsewhere = open_store(f"memory://{uuid.uuid4().hex}")
    record, _ = adopt(elsewhere, find_files(elsewhere, f"{store.url}/raw"), wanted)
    assert [elsewhere.read(file.key) for file in record.files] == [b"mine"]


def test_a_collection_removes_what_it_planned_and_nothing_else(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "SETTLE_SECONDS", 0.0)
    random_prefix(store, 4, steps=6)
    roots = dict.fromkeys(sorted(list_records(store).generations)[-2:], "kept")
    before = {info.key for info in store.list()}
    collection = plan_collection(store, Rules(keep=0.0, grace=0.0), roots)
    doomed = {info.key for _, _, info in collection.objects()}
    assert doomed and before - doomed
    swept = sweep(store, collection)
    assert not swept.failed and not swept.kept_back
    assert {info.key for info in store.list()} == before - doomed
