"""The state of a prefix: who works, what failed and what waits for it, with few requests."""

from __future__ import annotations

import dataclasses
import itertools
import json
import threading
import time
from pathlib import Path

import pytest

from marin.execution import Artifact, Runner, RunOptions, RunResult, layout, make_plan
from marin.execution.reasons.past_runs import find_run, read_run, run_names
from marin.execution.reasons.status import SILENT_BEATS, Beat, blockers, duration, liveness, look, run_status
from marin.execution.running.claims import Claims, Holder, this_holder
from marin.execution.running.inline import InlineBackend
from marin.execution.running.runlog import RunLog
from marin.execution.running.tasks import Report
from marin.execution.running.watch import Heartbeat
from marin.execution.running.worker import Outcome, StepTask
from marin.storage import CountedStore, Store
from tests.execution.driver import Driver
from tests.execution.graphs import Probe, diamond, executions, failing, joined, leaf, upper
from tests.storage.backends import wait_for


def run(target: Artifact, store: Store, force: str | None = None) -> RunResult:
    return Runner(store, make_plan([target], store, force=force), RunOptions(), InlineBackend).run()


@pytest.fixture(autouse=True)
def runs_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of one second have names in a random order; here they are told apart, and their events come soon."""
    count = itertools.count(1)
    monkeypatch.setattr("marin.execution.running.runner.new_run", lambda: f"20261130T0900{next(count):02d}-0000000a")
    monkeypatch.setattr("marin.execution.running.runlog.FLUSH_SECONDS", 0.2)


def names(displays: list[str]) -> list[str]:
    """Steps without their ids."""
    return [display.rpartition("-")[0] for display in displays]


def test_an_empty_prefix_has_nothing_to_tell(store: Store) -> None:
    seen = look(store)
    assert (seen.index.generations, seen.at_work, seen.failed, seen.run) == ({}, (), (), None)


def test_a_finished_run_leaves_nothing_at_work(store: Store, probe: Probe) -> None:
    run(diamond(probe), store)
    seen = look(store)
    assert len(seen.index.generations) == 5
    assert (seen.at_work, seen.failed) == ((), ())
    assert seen.run is not None
    assert (seen.run.text, dict(seen.run.counts)) == ("succeeded", {"done": 5})


def test_a_step_at_work_names_its_run_host_and_heartbeat(tmp_path: Path, local_store: Store) -> None:
    (tmp_path / "tally").mkdir()
    go = tmp_path / "go"
    with Driver(Path(local_store.url), "held", tmp_path / "tally", "--hold", str(go)) as driver:
        wait_for(lambda: executions(tmp_path / "tally", "leaf-held") == 1)
        wait_for(lambda: len(look(local_store).index.generations) == 1)  # the other leaf
        before = time.time()
        seen = look(local_store)
        (work,) = seen.at_work
        assert work.display.startswith("test/leaf-")
        assert (work.holder.pid, work.holder.run) == (driver.process.pid, run_names(local_store)[-1])
        assert 0 <= before - work.since < 60
        assert work.beat is not None
        assert liveness(work.holder, work.beat).startswith("running, heartbeat ")
        wait_for(lambda: dict(getattr(look(local_store).run, "counts", {})) == {"done": 1, "running": 1, "open": 1}, 20)
        driver.process.kill()
        driver.process.wait(timeout=10)
        (left,) = look(local_store).at_work
        assert liveness(left.holder, left.beat) == "its process is gone"
        again = look(local_store).run
        assert again is not None
        assert (again.is_over, again.text) == (False, "its process is gone")


def test_a_run_without_events_yet_is_told_from_its_claims(store: Store, probe: Probe) -> None:
    target = upper(leaf("a", probe), probe)
    plan = make_plan([target], store)
    name = "20261130T000000-00000000"
    RunLog(store, name).plan(plan)
    claims = Claims(store, name, stale_after=90.0)
    claims.beat()
    young = look(store).run
    assert young is not None
    assert (young.holder, dict(young.counts)) == (None, {"open": 2})
    first = next(one for one in plan.steps if one.name == "test/leaf")
    assert not isinstance(claims.take(first.name, first.identity, 1, first.folder), Holder)
    index = look(store).index
    for seen in (look(store).run, run_status(store, read_run(store, name), index)):
        assert seen is not None and seen.holder == claims.holder
        assert seen.started == 1_795_996_800  # midnight, 30 November 2026, UTC: `date -u -d 2026-11-30 +%s`
        assert dict(seen.counts) == {"running": 1, "open": 1}
        assert seen.text.startswith("running, heartbeat ")


def test_a_run_that_was_killed_before_its_events_were_written_is_gone(store: Store, probe: Probe) -> None:
    plan = make_plan([leaf("a", probe)], store)
    name = "20261130T000000-00000000"
    RunLog(store, name).plan(plan)
    claims = Claims(store, name, stale_after=90.0)
    claims.holder = dataclasses.replace(claims.holder, started="another process has the number now")
    claims.beat()
    (first,) = plan.steps
    assert not isinstance(claims.take(first.name, first.identity, 1, first.folder), Holder)
    seen = look(store).run
    assert seen is not None and seen.text == "its process is gone"


def test_a_holder_elsewhere_is_silent_when_its_heartbeat_is_old() -> None:
    elsewhere = dataclasses.replace(this_holder("r"), boot="another", host="far")
    assert liveness(elsewhere, None) == "no heartbeat"
    assert liveness(elsewhere, Beat(time.time() - 3, 15.0)) == "running, heartbeat 3 s ago"
    assert liveness(elsewhere, Beat(time.time() - SILENT_BEATS * 15 - 5, 15.0)) == "silent: heartbeat 1 min 5 s ago"


def test_a_claim_on_a_redo_is_at_work_and_the_claims_of_earlier_generations_are_not(store: Store, probe: Probe) -> None:
    target = leaf("a", probe)
    run(target, store)
    run(target, store, force="leaf")
    (step,) = make_plan([target], store).steps
    assert look(store).at_work == ()
    claims = Claims(store, "20261130T000000-00000000", stale_after=90.0)
    claims.beat()
    claim = claims.take(step.name, step.identity, 3, step.folder)
    assert not isinstance(claim, Holder)
    (work,) = look(store).at_work
    assert work.holder.run == "20261130T000000-00000000"
    claims.release(claim)
    assert look(store).at_work == ()


def test_a_failure_is_told_with_its_cause_until_the_step_has_a_record(store: Store, probe: Probe) -> None:
    target = joined((upper(failing("bug", None, probe), probe), leaf("a", probe)), probe)
    result = run(target, store)
    seen = look(store)
    (failed,) = seen.failed
    assert names([failed.display]) == ["test/failing"]
    assert failed.failure.line == "ZeroDivisionError: a bug of the step"
    assert "a bug of the step" in failed.failure.trace
    assert failed.log is not None
    assert b"ZeroDivisionError" in store.read(failed.log)
    assert seen.run is not None
    states = {one.entry.name: one.state for one in seen.run.steps}
    assert states == {"test/failing": "failed", "test/upper": "blocked", "test/joined": "blocked", "test/leaf": "done"}
    assert seen.run.text == "ended with failures"
    top = next(one for one in seen.run.steps if one.entry.name == "test/joined")
    ((blocker, way),) = blockers(seen.run, top.entry.identity)
    assert (blocker.entry.name, names(list(way))) == ("test/failing", ["test/upper"])
    step = next(p.step for p in result.steps if p.step.name == "test/failing")
    store.put(layout.record_key(step.name, step.identity), b"{}")
    assert look(store).failed == ()


def test_a_redo_that_failed_is_told_although_the_step_has_a_record(store: Store, probe: Probe) -> None:
    target = failing("vanish never", None, probe)
    run(target, store)
    plan = make_plan([target], store, force="failing")

    class Broken(InlineBackend):
        def run(self, task: StepTask, report: Report) -> Outcome:
            raise ZeroDivisionError("no redo today")

    assert not Runner(store, plan, RunOptions(), Broken).run().succeeded
    (failed,) = look(store).failed
    assert failed.failure.line == "ZeroDivisionError: no redo today"
    run(target, store, force="failing")
    assert look(store).failed == ()


def test_only_the_newest_failures_are_read_and_the_others_counted(store: Store) -> None:
    body = {"error": "E", "message": "m", "trace": "", "node": "n", "kind": "error", "time": 1.0, "expected": False}
    for number in range(50):
        key = layout.failure_key("a/b", f"{number:064x}"[::-1], f"20261130T00{number:04d}-00000000", 1)
        store.create(key, json.dumps(body).encode())
    counted = CountedStore(store)
    seen = look(counted)
    assert (len(seen.failed), seen.older_failures) == (20, 30)
    assert [one.failure.place.run for one in seen.failed] == [f"20261130T00{n:04d}-00000000" for n in range(49, 29, -1)]
    assert counted.requests["GET"] == 20
    assert len(look(store, all_failures=True).failed) == 50


def test_a_wait_for_another_run_is_told(store: Store, probe: Probe) -> None:
    target = leaf("a", probe)
    (step,) = make_plan([target], store).steps
    claims = Claims(store, "20261130T000000-00000000", stale_after=90.0)
    heartbeat = Heartbeat(claims)
    heartbeat.start()
    claim = claims.take(step.name, step.identity, 1, step.folder)
    assert not isinstance(claim, Holder)
    plan = make_plan([target], store)
    runner = Runner(store, plan, RunOptions(), InlineBackend)
    thread = threading.Thread(target=runner.run)
    thread.start()

    def waits() -> bool:
        seen = look(store).run
        return seen is not None and [one.state for one in seen.steps] == ["waiting"]

    try:
        wait_for(waits)  # its events are written within seconds, though nothing happens
        status = run_status(store, read_run(store, runner.run_name), look(store).index)
        assert status.steps[0].event is not None
        assert "run 20261130T000000-00000000 on" in status.steps[0].event.text
    finally:
        claims.release(claim)
        heartbeat.stop()
        thread.join(timeout=30)
    assert run_status(store, read_run(store, runner.run_name), look(store).index).text == "succeeded"


def test_thousands_of_records_cost_listings_and_no_reads(local_store: Store) -> None:
    for number in range(2_000):
        identity = f"{number:010x}" + "0" * 54
        local_store.put(layout.record_key("many/steps", identity), b"{}")
        local_store.put(layout.claim_key("many/steps", identity, 1), b"{}")
    counted = CountedStore(local_store)
    seen = look(counted)
    assert len(seen.index.generations) == 2_000
    assert seen.at_work == ()
    assert counted.requests["GET"] == 0
    assert sum(counted.requests.values()) == 4  # a local listing is one page: records, claims, failures, runs


def test_strange_objects_among_claims_and_failures_are_passed_over(store: Store, probe: Probe) -> None:
    run(leaf("a", probe), store)
    for key in ("_claims/.DS_Store", "_claims/odd/file", "_failed/notes.txt", "_failed/a/b/c", "_runs/readme"):
        store.create(key, b"")
    seen = look(store)
    assert (seen.at_work, seen.failed) == ((), ())
    assert seen.run is not None


def test_a_run_is_found_by_the_start_or_the_end_of_its_name(store: Store, probe: Probe) -> None:
    result = run(leaf("a", probe), store)
    assert (
        find_run(store, result.run)
        == find_run(store, result.run[-8:])
        == find_run(store, result.run[:14])
        == result.run
    )
    with pytest.raises(Exception, match=f"has no run 'nothing'; the newest are {result.run}"):
        find_run(store, "nothing")
    run(leaf("b", probe), store)
    with pytest.raises(Exception, match="has 2 runs '2026"):
        find_run(store, result.run[:4])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.4, "59 s"), (60, "1 min 0 s"), (3_661, "1 h 1 min"), (90_000, "1 d 1 h"), (-3, "0 s")],
)
def test_time_spans_are_told_in_their_two_largest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text
