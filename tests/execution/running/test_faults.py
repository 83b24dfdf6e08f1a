"""Whatever a store does to a run, and wherever a driver dies, nothing committed is lost, mixed, or done twice."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pytest

from marin.execution import Runner, RunOptions, make_plan
from marin.execution.running import patience
from marin.execution.running.inline import InlineBackend
from marin.storage import open_store
from operations.soak import invariants
from operations.soak.drive import Drive
from operations.soak.faults import READS, WRITES, Fault, FaultyStore, Rule
from operations.soak.forks import KILLED, driven
from operations.soak.graph import Ledger, open_ledger, small
from tests.execution.running.forked import undisturbed

pytestmark = pytest.mark.slow

STEPS = 4
SHARDS = 5


def check_death(drive: Drive) -> bool:
    """Run a driver that dies, then one that does not; whether the first got through. Fails where anything is lost."""
    prefix, ledger = drive.prefix, drive.ledger
    code = driven(drive)
    assert code in (0, KILLED)
    store, folder = open_store(prefix), Path(ledger.folder)
    assert invariants.damage(store) == []
    before, noted = invariants.finished(store), invariants.executions(folder)
    assert driven(Drive(prefix, drive.graph, ledger, max_concurrent=1)) == 0
    assert invariants.damage(store) == []
    assert invariants.stale(store) == []
    after = invariants.executions(folder)
    assert invariants.repeated(before, noted, after) == []
    assert max(after.values(), default=0) <= 2
    return code == 0


def test_a_driver_that_dies_at_any_write_loses_nothing_and_nothing_finished_is_redone(tmp_path: Path) -> None:
    expected = undisturbed(tmp_path / "undisturbed")
    deaths, survived = 0, False
    while not survived:
        ledger, prefix = open_ledger(tmp_path / f"ledger{deaths}"), str(tmp_path / f"prefix{deaths}")
        dies = Rule(Fault.die_before, WRITES, at=deaths + 1)
        survived = check_death(Drive(prefix, "small", ledger, (dies,), max_concurrent=1))
        assert invariants.outputs(open_store(prefix)) == expected
        deaths += not survived
    assert deaths >= 3 * STEPS + 2 * SHARDS  # a claim, a file and a record each; a file and a mark each


def test_a_redo_that_dies_at_any_write_leaves_all_old_or_is_carried_through(tmp_path: Path) -> None:
    old, new = undisturbed(tmp_path / "one"), undisturbed(tmp_path / "two", text="two")
    assert old.keys() == new.keys()
    assert all(old[step] != new[step] for step in old)
    made = tmp_path / "made"
    assert driven(Drive(str(made), "small", open_ledger(tmp_path / "ledger"))) == 0
    deaths, carried_through, survived = 0, 0, False
    while not survived:
        ledger, prefix = open_ledger(tmp_path / f"ledger{deaths}", "two"), tmp_path / f"prefix{deaths}"
        shutil.copytree(made, prefix)
        dies = Rule(Fault.die_before, WRITES, at=deaths + 1)
        redo = Drive(str(prefix), "small", ledger, (dies,), force="soak/source", max_concurrent=1)
        survived = check_death(redo)
        began = list((prefix / "_steps").glob("soak.source-*.r2.json")) != []
        assert invariants.outputs(open_store(prefix)) == (new if began else old)
        carried_through += began
        deaths += not survived
    assert deaths >= 3 * STEPS + 2 * SHARDS
    assert carried_through >= 3 * (STEPS - 1) + 2 * SHARDS


def test_a_driver_that_dies_at_any_write_leaves_early_cutoff_sound(tmp_path: Path) -> None:
    """Of two steps with equal inputs one runs; both may where a driver dies before the output of one is offered."""
    expected = undisturbed(tmp_path / "undisturbed", "equal")
    deaths, survived, twice = 0, False, 0
    while not survived:
        ledger, prefix = open_ledger(tmp_path / f"ledger{deaths}"), str(tmp_path / f"prefix{deaths}")
        dies = Rule(Fault.die_before, WRITES, at=deaths + 1)
        survived = check_death(Drive(prefix, "equal", ledger, (dies,), max_concurrent=1))
        assert invariants.outputs(open_store(prefix)) == expected
        executed = [step for step, _ in invariants.executions(Path(ledger.folder)) if step.startswith("soak.trimmed")]
        assert len(executed) in (1, 2)
        twice += len(executed) == 2
        deaths += not survived
    assert deaths >= 3 * (STEPS + 1) - 1
    assert twice <= 4


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver asks again at once, not after seconds."""
    monkeypatch.setattr(patience, "FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(patience, "LONGEST_PAUSE_SECONDS", 0.01)


def run_under(rules: list[Rule], ledger: Ledger, expected: dict[str, str]) -> list[int]:
    """Run the small graph once under faults; it must succeed and be right. Returns how often each rule matched."""
    sound = open_store(f"memory://{uuid.uuid4().hex}")
    store = FaultyStore(sound, rules)
    plan = make_plan([small(ledger)], sound)
    result = Runner(store, plan, RunOptions(max_concurrent=2, retry_pause=0.001), InlineBackend).run()
    assert result.succeeded, [progress.failure.trace for progress in result.failures if progress.failure is not None]
    assert invariants.damage(sound) == []
    assert invariants.outputs(sound) == expected
    return store.counts


@pytest.mark.parametrize("fault", [Fault.refuse, Fault.lose_reply, Fault.repeat])
@pytest.mark.usefixtures("_impatient")
def test_a_run_outlives_a_fault_of_any_one_operation(tmp_path: Path, fault: Fault) -> None:
    expected = undisturbed(tmp_path / "undisturbed")
    struck, matched = 0, 1
    while matched > struck:
        ledger = open_ledger(tmp_path / f"ledger{struck}")
        struck += 1
        (matched,) = run_under([Rule(fault, at=struck)], ledger, expected)
        executions = invariants.executions(Path(ledger.folder))
        assert max(executions.values()) <= 2
        assert sum(count - 1 for count in executions.values()) <= 1 + 1  # a shard, and the body around it
    assert struck >= 3 * STEPS + 2 * SHARDS


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.usefixtures("_impatient")
def test_a_run_outlives_many_faults_at_once(tmp_path: Path, seed: int) -> None:
    expected = undisturbed(tmp_path / "undisturbed")
    rules = [
        Rule(Fault.refuse, READS | WRITES, chance=0.05, seed=seed),
        Rule(Fault.lose_reply, WRITES, chance=0.05, seed=seed + 100),
        Rule(Fault.repeat, WRITES, chance=0.1, seed=seed + 200),
        Rule(Fault.delay, READS | WRITES, chance=0.1, seed=seed + 300, seconds=0.005),
    ]
    run_under(rules, open_ledger(tmp_path / "ledger"), expected)
