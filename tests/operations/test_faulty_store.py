"""The store that fails by a script fails as the script says, and the checks of campaigns see what they look for."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from marin.storage import AlreadyExists, Store, StoreUnavailable, open_store
from operations.soak import invariants
from operations.soak.drive import Drive, rules_of_json, rules_to_json
from operations.soak.faults import WRITES, Fault, FaultyStore, Rule
from operations.soak.graph import open_ledger

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def store() -> Store:
    return open_store(f"memory://{uuid.uuid4().hex}")


def test_a_refused_operation_did_not_happen_and_one_whose_reply_was_lost_did(store: Store) -> None:
    faulty = FaultyStore(store, [Rule(Fault.refuse, WRITES, at=1), Rule(Fault.lose_reply, WRITES, at=2)])
    for key in ("a", "b"):
        with pytest.raises(StoreUnavailable):
            faulty.create(key, b"x")
    faulty.create("c", b"x")
    assert [info.key for info in store.list()] == ["b", "c"]


def test_an_operation_that_happens_twice_has_the_first_answer(store: Store) -> None:
    faulty = FaultyStore(store, [Rule(Fault.repeat)])
    faulty.create("a", b"x")
    with pytest.raises(AlreadyExists):
        faulty.create("a", b"x")
    with faulty.writer("b") as stream:
        stream.write(b"yy")
    assert (store.read("a"), store.read("b")) == (b"x", b"yy")


def test_a_stream_fails_at_its_end_and_leaves_nothing(store: Store) -> None:
    faulty = FaultyStore(store, [Rule(Fault.refuse, frozenset({"write"}))])
    with pytest.raises(StoreUnavailable), faulty.writer("a") as stream:
        stream.write(b"x")
    assert store.list() == []


def test_what_is_dropped_or_hidden_seems_to_be_well(store: Store) -> None:
    rules = [Rule(Fault.drop, frozenset({"put"}), after=1), Rule(Fault.hide, frozenset({"size"}), keys="b")]
    faulty = FaultyStore(store, rules)
    for data in (b"1", b"2"):
        faulty.put("a", data)
    store.create("b", b"x")
    assert store.read("a") == b"1"
    assert (faulty.exists("a"), faulty.exists("b"), store.exists("b")) == (True, False, True)
    with pytest.raises(ValueError, match="drop is for"):
        Rule(Fault.drop)


def test_a_rule_counts_what_it_matches_and_nothing_else(store: Store) -> None:
    faulty = FaultyStore(store, [Rule(Fault.refuse, frozenset({"create"}), keys="in/", at=2)])
    for key in ("in/a", "out/a", "inner"):
        faulty.create(key, b"")
    with pytest.raises(StoreUnavailable):
        faulty.create("in/b", b"")
    faulty.create("in/b", b"")
    assert faulty.counts == [3]


def test_a_seeded_share_is_struck_the_same_way_each_time(store: Store) -> None:
    def struck(seed: int) -> list[int]:
        rule = Rule(Fault.refuse, chance=0.2, seed=seed)
        return [number for number in range(1, 501) if rule.strikes(number)]

    assert struck(1) == struck(1) != struck(2)
    assert 60 <= len(struck(1)) <= 140  # five standard deviations around a hundred


def test_a_copy_in_another_process_fails_alike(store: Store) -> None:
    faulty = FaultyStore(store, [Rule(Fault.refuse, WRITES, at=2)])
    faulty.create("a", b"")
    copy = pickle.loads(pickle.dumps(faulty))
    for one in (faulty, copy):
        with pytest.raises(StoreUnavailable):
            one.create("b", b"")
    assert rules_of_json(rules_to_json(faulty.rules)) == faulty.rules


@pytest.mark.parametrize(("fault", "left"), [(Fault.die_before, False), (Fault.die_after, True)])
def test_a_death_comes_before_or_after_the_write(tmp_path: Path, fault: Fault, left: bool) -> None:
    code = (
        "import sys; from marin.storage import open_store; from operations.soak.faults import *; "
        f"store = FaultyStore(open_store(sys.argv[1]), [Rule({fault}, WRITES, at=1)]); store.create('a', b'x')"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "prefix")], cwd=ROOT, timeout=60, check=False)
    assert done.returncode == -9
    assert open_store(tmp_path / "prefix").exists("a") is left


@pytest.fixture
def made(tmp_path: Path) -> Store:
    """A prefix in which the small graph was run."""
    prefix = str(tmp_path / "prefix")
    assert Drive(prefix, "small", open_ledger(tmp_path / "ledger")).run().succeeded
    return open_store(prefix)


def test_the_checks_find_nothing_in_a_sound_prefix(made: Store, tmp_path: Path) -> None:
    assert invariants.damage(made) == invariants.stale(made) == []
    done, counts = invariants.finished(made), invariants.executions(tmp_path / "ledger")
    assert (len(done.records), len(done.shards), len(counts)) == (4, 5, 4 + 5)
    assert invariants.repeated(done, counts, counts) == []


def test_the_checks_see_a_file_that_is_gone_and_one_that_is_other(made: Store) -> None:
    first, second = [file for record in invariants.records(made).values() for file in record["files"]][:2]
    made.delete(first["key"])
    made.put(second["key"], b"x" * second["size"])
    found = invariants.damage(made)
    assert len(found) == 2
    assert sum("is missing" in line for line in found) == sum("other bytes" in line for line in found) == 1


def test_the_checks_see_what_ran_again_and_what_was_made_from_an_old_output(made: Store, tmp_path: Path) -> None:
    done, counts = invariants.finished(made), invariants.executions(tmp_path / "ledger")
    again = counts + counts
    assert len(invariants.repeated(done, counts, again)) == 4 + 5 + 5  # a shard's step is committed, too
    (key,) = [key for key in invariants.records(made) if "soak.source" in key]
    record = json.loads(made.read(key))
    newer = {**record, "generation": 2, "output_digest": "0" * 64}
    made.create(key.replace(".json", ".r2.json"), json.dumps(newer).encode())
    assert len(invariants.stale(made)) == 2
