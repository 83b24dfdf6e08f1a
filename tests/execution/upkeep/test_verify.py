"""Damage is found where it was done, by digest also where the size is right, and nothing else is called damaged."""

from __future__ import annotations

import errno
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from marin.execution import Action, make_plan, materialise
from marin.execution.planning.index import list_records
from marin.execution.records import load_record
from marin.execution.upkeep.verify import (
    Checked,
    damage_of,
    reasons_to_redo,
    upstream_keys,
    verify_records,
    verify_steps,
)
from marin.storage import CountedStore, Store, StoreUnavailable, open_store
from tests.execution.graphs import Probe, diamond, leaf
from tests.execution.upkeep.forged import Forge


def keys(store: Store) -> list[str]:
    """The keys of all records."""
    return [info.key for info in store.list("_steps")]


def test_a_sound_prefix_has_no_damage(store: Store) -> None:
    forge = Forge(store)
    for number in range(20):
        forge.step(f"test/s{number}")
    seen: list[Checked] = []
    assert verify_steps(store, keys(store), progress=seen.append) == {}
    assert [checked.steps for checked in seen] == list(range(1, 21))
    assert seen[-1] == Checked(20, 20, 20, sum(record.size for record in forge.records.values()))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda body: body["recipe"].update(config={"x": 1}), "recipe is not the one that its identity says"),
        (lambda body: body.update(result={"parts": [1]}), "not what its output digest says"),
        (lambda body: body.update(files=[]), "not what its output digest says"),
        (lambda body: body["files"][0].update(sha256="0" * 64), "not what its output digest says"),
        (lambda body: body.update(name="test/other"), "belongs under _steps/test.other-"),
    ],
)
def test_a_record_that_does_not_agree_with_itself_is_damage(
    store: Store, change: Callable[[dict[str, Any]], None], says: str
) -> None:
    forge = Forge(store)
    record = forge.step("test/a", refers_to=[forge.step("test/b")])
    assert verify_steps(store, keys(store)) == {}
    body = json.loads(store.read(record.key))
    change(body)
    store.put(record.key, json.dumps(body).encode())
    assert says in " ".join(verify_steps(store, keys(store))[record.key])
    assert says in " ".join(damage_of(store, load_record(store, record.key), digests=False))


def test_a_record_under_another_ones_key_is_damage(store: Store) -> None:
    forge = Forge(store)
    one, other = forge.step("test/a"), forge.step("test/b")
    store.put(other.key, store.read(one.key))
    assert list(verify_steps(store, keys(store))) == [other.key]


def test_missing_cut_and_changed_files_are_told_apart_and_named(store: Store) -> None:
    forge = Forge(store)
    files = [forge.file(f"x/{name}", b"0123456789") for name in ("whole", "missing", "cut", "changed")]
    record = forge.step("test/a", files)
    store.delete("x/missing")
    store.put("x/cut", b"01234")
    store.put("x/changed", b"0123456780")
    found = damage_of(store, record, digests=True)
    assert len(found) == 3
    expected = (("missing", "is missing"), ("cut", "has 5 bytes, its record says 10"), ("changed", "other bytes"))
    for text, (name, what) in zip(found, expected, strict=True):
        assert f"'{name}'" in text and what in text and store.url_of(f"x/{name}") in text
    assert len(damage_of(store, record, digests=False)) == 2
    assert verify_records(store, [record]) == {record.key: found}
    assert reasons_to_redo(store, [record])[record.key].endswith("and 2 more")


def test_a_record_that_cannot_be_read_or_is_gone_is_damage(store: Store) -> None:
    record = Forge(store).step("test/a")
    store.put(record.key, b"{ torn")
    found = verify_steps(store, [record.key, "_steps/test.b-0123456789.json"])
    assert "is damaged" in found[record.key][0]
    assert "there is no record" in found["_steps/test.b-0123456789.json"][0]


def test_sizes_alone_read_no_file_and_a_listing_takes_the_place_of_requests(store: Store) -> None:
    forge = Forge(store)
    wanted = [forge.step(f"test/s{number}").key for number in range(5)]
    counted = CountedStore(store)
    assert verify_steps(counted, wanted, digests=False) == {}
    assert counted.requests["GET"] == 5 and counted.requests["HEAD"] == 5
    listed = {info.key: info.size for info in store.list()}
    counted = CountedStore(store)
    assert verify_steps(counted, wanted, digests=False, listed=listed) == {}
    assert dict(counted.requests) == {"GET": 5}


def test_a_file_that_several_records_list_is_read_once(store: Store) -> None:
    forge = Forge(store)
    first = forge.step("test/s0")
    for number in range(1, 200):
        forge.step(f"test/s{number}", first.files)
    counted = CountedStore(store)
    assert verify_steps(counted, keys(store)) == {}
    assert counted.requests["GET"] - 200 <= 150  # those that were handed out before the first was read


def test_a_store_that_gives_no_answer_is_no_damage_and_a_bad_sector_is(store: Store) -> None:
    class Broken(CountedStore):
        def open(self, key: str) -> BinaryIO:
            raise error

    record = Forge(store).step("test/a")
    error: Exception = StoreUnavailable("try later")
    with pytest.raises(StoreUnavailable):
        damage_of(Broken(store), record, digests=True)
    error = OSError(errno.EIO, "Input/output error")
    assert "cannot be read" in damage_of(Broken(store), record, digests=True)[0]
    error = ConnectionResetError(errno.ECONNRESET, "reset")
    with pytest.raises(ConnectionResetError):
        damage_of(Broken(store), record, digests=True)


def test_files_are_read_several_at_a_time(store: Store) -> None:
    class Slow(CountedStore):
        now = most = 0

        def open(self, key: str) -> BinaryIO:
            with lock:
                Slow.now += 1
                Slow.most = max(Slow.most, Slow.now)
            time.sleep(0.02)
            with lock:
                Slow.now -= 1
            return super().open(key)

    lock = threading.Lock()
    forge = Forge(store)
    wanted = [forge.step(f"test/s{number}").key for number in range(30)]
    assert verify_steps(Slow(store), wanted) == {}
    assert Slow.most > 3


def test_upstreams_are_followed_to_their_newest_record(store: Store) -> None:
    forge = Forge(store)
    bottom = forge.step("test/bottom")
    middle = forge.step("test/middle", above=[bottom])
    top = forge.step("test/top", above=[middle, bottom])
    again = forge.step("test/bottom", generation=2)
    forge.step("test/other")
    assert set(upstream_keys(store, [top.key], list_records(store))) == {top.key, middle.key, again.key}
    store.delete(middle.key)
    assert set(upstream_keys(store, [top.key], list_records(store))) == {top.key, again.key}


def test_what_is_damaged_is_redone_by_a_plan_that_verifies_and_by_no_other(tmp_path: Path, probe: Probe) -> None:
    prefix = str(tmp_path / "prefix")
    materialise(diamond(probe), prefix)
    store = open_store(prefix)
    key = next(info.key for info in store.list("test/leaf") if store.read(info.key) == b"a")
    store.put(key, b"b")
    assert not make_plan([diamond(probe)], store).to_do()
    plan = make_plan([diamond(probe)], store, verify=reasons_to_redo)
    redone = {step.name: (step.action, step.reason) for step in plan.to_do()}
    assert redone["test/leaf"][0] is Action.run and "other bytes" in redone["test/leaf"][1]
    assert set(redone) == {"test/leaf", "test/upper", "test/joined"}
    assert redone["test/joined"][0] is Action.check


def test_records_of_real_runs_are_sound(tmp_path: Path, probe: Probe) -> None:
    prefix = str(tmp_path / "prefix")
    materialise(leaf("a", probe), prefix)
    store = open_store(prefix)
    assert damage_of(store, load_record(store, keys(store)[0]), digests=True) == []
