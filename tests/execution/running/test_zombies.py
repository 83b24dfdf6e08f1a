"""A holder that is given up while it lives, late or early, an hour off or not: one result, whole, and no mixture."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from marin.storage import Store, open_store
from operations.soak import invariants
from operations.soak.drive import Drive
from operations.soak.faults import Fault, Rule
from operations.soak.forks import Forked
from operations.soak.graph import CHECKPOINTS, Ledger, open_ledger
from tests.execution.running.forked import await_begun, undisturbed
from tests.storage.backends import wait_for

pytestmark = pytest.mark.slow

SILENT = Rule(Fault.drop, frozenset({"put"}), keys="_runs/", after=1)
"""The heartbeat is written once, and then it only seems to be."""

BLIND = Rule(Fault.hide, frozenset({"size"}), keys="_claims/")
"""A newer claim is not seen."""

STALE_SECONDS = 1.0
HOUR = 3600.0


def held(kind: str, keys: str, until: Path) -> Rule:
    """The first operation of a kind waits for a file."""
    return Rule(Fault.hold, frozenset({kind}), keys=keys, at=1, until=str(until))


def record_of(store: Store, step: str) -> dict[str, Any]:
    """The one record of a step."""
    (found,) = [record for name, record in invariants.newest(store).items() if name.startswith(step)]
    return found


def await_files(folder: Path, pattern: str, count: int) -> None:
    """Return once so many files match."""
    wait_for(lambda: len(list(folder.rglob(pattern))) >= count)


def check_whole(store: Store, text: str, folder: Path) -> None:
    """Everything is there, once, made from one text, and the losers' files are at most litter."""
    assert invariants.damage(store) == invariants.stale(store) == []
    assert invariants.outputs(store) == undisturbed(folder, text=text)
    assert {record["generation"] for record in invariants.records(store).values()} == {1}


@pytest.mark.parametrize("skew", [0.0, *(pytest.param(skew, marks=pytest.mark.slow) for skew in (HOUR, -HOUR))])
def test_a_zombie_that_finishes_late_adopts_its_successors_result(tmp_path: Path, skew: float) -> None:
    """The zombie read the text `one`, its successor the text `two`; all that follows comes from `two`."""
    prefix, go = str(tmp_path / "prefix"), tmp_path / "go"
    ledger = open_ledger(tmp_path / "ledger", "one")
    rules = (SILENT, held("write", "soak/source", go))
    with Forked(Drive(prefix, "small", ledger, rules, STALE_SECONDS, skew=skew)) as zombie:
        await_begun(tmp_path / "ledger", "soak.source", epoch=1)
        open_ledger(tmp_path / "ledger", "two")
        with Forked(Drive(prefix, "small", ledger, (), STALE_SECONDS)) as successor:
            assert successor.ended() == 0
        go.touch()
        assert zombie.ended() == 0
    store = open_store(prefix)
    check_whole(store, "two", tmp_path / "undisturbed")
    assert record_of(store, "soak.source")["provenance"]["epoch"] == 2


def test_a_zombie_that_finishes_before_its_successor_commits_nothing_once_it_was_taken_over(tmp_path: Path) -> None:
    prefix, go, go_on = str(tmp_path / "prefix"), tmp_path / "go", tmp_path / "go on"
    ledger = open_ledger(tmp_path / "ledger", "one")
    rules = (SILENT, held("write", "soak/source", go))
    with Forked(Drive(prefix, "small", ledger, rules, STALE_SECONDS)) as zombie:
        await_begun(tmp_path / "ledger", "soak.source", epoch=1)
        open_ledger(tmp_path / "ledger", "two")
        rules = (held("write", "soak/source", go_on),)
        with Forked(Drive(prefix, "small", ledger, rules, STALE_SECONDS)) as successor:
            await_begun(tmp_path / "ledger", "soak.source", epoch=2)
            go.touch()
            time.sleep(1.0)
            assert zombie.is_alive
            assert invariants.records(open_store(prefix)) == {}
            go_on.touch()
            assert (zombie.ended(), successor.ended()) == (0, 0)
    store = open_store(prefix)
    check_whole(store, "two", tmp_path / "undisturbed")
    assert record_of(store, "soak.source")["provenance"]["epoch"] == 2


@pytest.mark.parametrize("first", ["zombie", "successor"])
def test_of_two_commits_in_flight_the_first_wins_and_the_other_adopts_it(tmp_path: Path, first: str) -> None:
    """Both are past every check of the lease when their records are held up on the way to the store."""
    prefix = str(tmp_path / "prefix")
    go = {"zombie": tmp_path / "zombie goes", "successor": tmp_path / "successor goes"}
    ledger = open_ledger(tmp_path / "ledger", "one")
    rules = (SILENT, held("create", "_steps/soak.source", go["zombie"]))
    with Forked(Drive(prefix, "small", ledger, rules, STALE_SECONDS)) as zombie:
        await_begun(tmp_path / "ledger", "soak.source", epoch=1)
        files = tmp_path / "prefix" / "soak" / "source"
        await_files(files, "text.txt", 1)
        time.sleep(0.3)
        open_ledger(tmp_path / "ledger", "two")
        rules = (held("create", "_steps/soak.source", go["successor"]),)
        with Forked(Drive(prefix, "small", ledger, rules, STALE_SECONDS)) as successor:
            await_begun(tmp_path / "ledger", "soak.source", epoch=2)
            await_files(files, "text.txt", 2)
            time.sleep(0.3)
            go[first].touch()
            await_files(tmp_path / "prefix" / "_steps", "soak.source-*.json", 1)
            go["successor" if first == "zombie" else "zombie"].touch()
            assert (zombie.ended(), successor.ended()) == (0, 0)
    store = open_store(prefix)
    check_whole(store, "one" if first == "zombie" else "two", tmp_path / "undisturbed")
    assert record_of(store, "soak.source")["provenance"]["epoch"] == (1 if first == "zombie" else 2)


def results(store: Store) -> dict[str, bytes]:
    """The training's output files by name."""
    return {file["name"]: store.read(file["key"]) for file in record_of(store, "soak.train")["files"]}


@pytest.mark.parametrize("skew", [0.0, pytest.param(HOUR, marks=pytest.mark.slow)])
@pytest.mark.parametrize("first", ["zombie", "successor"])
def test_a_partitioned_gang_that_trains_on_changes_nothing_for_its_successor(
    tmp_path: Path, skew: float, first: str
) -> None:
    """The old gang sees no newer claim and is seen by nobody; it writes checkpoints, and a record, all the same."""
    alone = str(tmp_path / "alone")
    with Forked(Drive(alone, "training", open_ledger(tmp_path / "undisturbed"))) as only:
        assert only.ended() == 0
    expected = invariants.state(open_store(alone), "soak/train")
    assert len(expected) == 2 * 2 * CHECKPOINTS
    assert {len(bodies) for bodies in expected.values()} == {1}
    prefix, go, go_on = str(tmp_path / "prefix"), tmp_path / "go", tmp_path / "go on"
    folder = tmp_path / "ledger"
    open_ledger(folder)
    slow = Ledger(str(folder), pause=0.05, hold=str(go))
    with Forked(Drive(prefix, "training", slow, (SILENT, BLIND), STALE_SECONDS, skew=skew)) as zombie:
        state = tmp_path / "prefix" / "soak" / "train"
        await_files(state, "state/000001/step0002/*.done", 2)
        later = Ledger(str(folder), pause=0.05)
        rules = (held("create", "_steps/", go_on),)
        with Forked(Drive(prefix, "training", later, rules, STALE_SECONDS)) as successor:
            await_begun(folder, "soak.train", epoch=2, parts=("rank0", "rank1"))
            await_files(state, "state/000002/step0003/*.done", 2)
            if first == "zombie":
                go.touch()
                assert zombie.ended() == 0
                go_on.touch()
            else:
                go_on.touch()
                time.sleep(0.2)
                go.touch()
            assert (successor.ended(), zombie.ended()) == (0, 0)
    store = open_store(prefix)
    assert invariants.damage(store) == []
    assert invariants.state(store, "soak/train") == expected
    assert results(store) == results(open_store(alone))
    assert len(list(state.rglob("state/000001/step*/*.done"))) == 2 * CHECKPOINTS
    begun = sorted(path.parent.name for path in state.rglob("state/000002/step*/rank0.done"))
    assert begun[0] == "step0003"
    assert begun[-1] == f"step{CHECKPOINTS - 1:04d}"
    if first == "zombie":
        assert record_of(store, "soak.train")["provenance"]["epoch"] == 1


def test_an_hour_between_two_clocks_takes_nothing_from_a_live_holder(tmp_path: Path) -> None:
    prefix, go = str(tmp_path / "prefix"), tmp_path / "go"
    ledger = open_ledger(tmp_path / "ledger")
    rules = (held("write", "soak/source", go),)
    with Forked(Drive(prefix, "small", ledger, rules, STALE_SECONDS, skew=-HOUR)) as holder:
        await_begun(tmp_path / "ledger", "soak.source", epoch=1)
        with Forked(Drive(prefix, "small", ledger, (), STALE_SECONDS, skew=HOUR)) as other:
            time.sleep(4 * STALE_SECONDS)
            assert other.is_alive
            go.touch()
            assert (holder.ended(), other.ended()) == (0, 0)
    check_whole(open_store(prefix), "one", tmp_path / "undisturbed")
    assert set(invariants.executions(tmp_path / "ledger").values()) == {1}
