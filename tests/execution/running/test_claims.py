"""Claims: one holder at a time, and a dead one is followed soon."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from marin.execution import LeaseLost, Runner, RunOptions, current_run, make_plan, step
from marin.execution.fleet import Fleet
from marin.execution.running import claims as module
from marin.execution.running.claims import (
    Claim,
    Claims,
    Holder,
    check_lease,
    claim_bytes,
    claim_state,
    process_is_gone,
    this_holder,
)
from marin.execution.running.context import Run
from marin.execution.running.inline import InlineBackend
from marin.execution.running.scratch import Scratch
from marin.execution.running.tasks import Report, RunSpec
from marin.execution.running.worker import Outcome, StepTask
from marin.storage import MissingObject, Store, open_store
from tests.execution.graphs import Probe, Text, executions, leaf, upper

NAME, IDENTITY = "test/step", "a" * 64


@pytest.fixture
def store() -> Store:
    return open_store(f"memory://{uuid.uuid4().hex}")


@pytest.fixture
def probe(tmp_path: Path) -> Probe:
    (tmp_path / "tally").mkdir()
    return Probe(str(tmp_path / "tally"))


class Clock:
    """The observer's own monotonic clock."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module.time, "monotonic", clock.monotonic)
    return clock


def elsewhere(store: Store, run: str = "other", epoch: int = 1) -> Holder:
    """A claim by a run on another host."""
    holder = dataclasses.replace(this_holder(run), host="node7", boot="another-boot", pid=12345)
    store.create(f"_claims/test.step-aaaaaaaaaa/{epoch:06d}.json", claim_bytes(Claim(NAME, IDENTITY, epoch), holder))
    return holder


def taken(claims: Claims) -> Claim:
    claim = claims.take(NAME, IDENTITY)
    assert isinstance(claim, Claim), f"held by {claim}"
    return claim


def test_the_first_claim_is_epoch_one_and_the_next_waits_until_it_is_released(store: Store) -> None:
    one, other = Claims(store, "one", 60), Claims(store, "other", 60)
    one.beat()
    claim = taken(one)
    assert claim.epoch == 1
    held = other.take(NAME, IDENTITY)
    assert isinstance(held, Holder)
    assert (held.run, held.pid) == ("one", os.getpid())
    one.release(claim)
    one.release(claim)
    assert taken(other).epoch == 2
    assert len(store.list("_claims")) == 3


def test_of_many_that_claim_at_once_one_gets_it(store: Store) -> None:
    for _ in range(10):
        barrier = threading.Barrier(8)
        name = f"test/race{len(store.list('_claims'))}"

        def attempt(number: int, name: str = name, barrier: threading.Barrier = barrier) -> Any:
            claims = Claims(store, f"run-{number}", 60)
            barrier.wait()
            return claims.take(name, IDENTITY)

        with ThreadPoolExecutor(8) as pool:
            got = list(pool.map(attempt, range(8)))
        winners = [number for number, claim in enumerate(got) if isinstance(claim, Claim)]
        assert len(winners) == 1
        assert {holder.run for holder in got if isinstance(holder, Holder)} == {f"run-{winners[0]}"}


def test_a_claim_whose_reply_was_lost_is_still_ones_own(store: Store) -> None:
    claims = Claims(store, "one", 60)
    assert taken(claims) == taken(claims) == Claim(NAME, IDENTITY, 1)


def test_a_holder_whose_process_is_gone_is_followed_at_once(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    code = (
        "import sys; from marin.storage import open_store; from marin.execution.running.claims import Claims; "
        "claims = Claims(open_store(sys.argv[1]), 'dead', 90); claims.beat(); "
        f"print(claims.take({NAME!r}, {IDENTITY!r}).epoch)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, store.url], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "1"
    assert taken(Claims(store, "next", 1e9)).epoch == 2


def test_a_process_is_gone_only_when_that_can_be_known() -> None:
    mine = this_holder("run")
    assert not process_is_gone(mine)
    assert process_is_gone(dataclasses.replace(mine, started="1"))
    assert process_is_gone(dataclasses.replace(mine, pid=2**22 + 1))
    assert not process_is_gone(dataclasses.replace(mine, started="1", boot="another"))
    assert not process_is_gone(dataclasses.replace(mine, started="1", pid_namespace="pid:[1]"))
    assert not process_is_gone(dataclasses.replace(mine, started="1", boot=""))


def test_a_silent_holder_elsewhere_is_stale_after_the_time_on_the_observers_clock(store: Store, clock: Clock) -> None:
    holder = elsewhere(store)
    store.put("_runs/other/beat", b"1")
    claims = Claims(store, "observer", 90)
    assert claims.take(NAME, IDENTITY) == holder
    clock.now += 89
    assert claims.take(NAME, IDENTITY) == holder
    store.put("_runs/other/beat", b"2")
    clock.now += 89
    assert claims.take(NAME, IDENTITY) == holder
    clock.now += 90
    assert claims.take(NAME, IDENTITY) == holder
    clock.now += 1
    assert taken(claims).epoch == 2


def test_the_time_that_a_heartbeat_names_means_nothing(store: Store, clock: Clock) -> None:
    holder = elsewhere(store)
    claims = Claims(store, "observer", 90)
    for hours in (-10_000, 10_000, 0):
        store.put("_runs/other/beat", json.dumps({"time": time.time() + 3600 * hours}).encode())
        clock.now += 80
        assert claims.take(NAME, IDENTITY) == holder


def test_a_holder_without_any_heartbeat_is_stale_after_the_time(store: Store, clock: Clock) -> None:
    elsewhere(store)
    claims = Claims(store, "observer", 90)
    assert isinstance(claims.take(NAME, IDENTITY), Holder)
    clock.now += 91
    assert taken(claims).epoch == 2


def test_a_holder_whose_run_says_that_it_has_ended_is_followed_at_once(store: Store) -> None:
    ended = Claims(store, "ended", 90)
    ended.beat()
    assert taken(ended).epoch == 1
    observer = Claims(store, "observer", 90)
    assert isinstance(observer.take(NAME, IDENTITY), Holder)
    ended.beat(last=True)
    assert taken(observer).epoch == 2


def test_a_newer_epoch_ends_the_lease(store: Store) -> None:
    claims = Claims(store, "one", 60)
    claim = taken(claims)
    check_lease(store, claim)
    elsewhere(store, epoch=2)
    with pytest.raises(LeaseLost, match=r"test/step-aaaaaaaaaa was taken over: epoch 2 is newer than 1"):
        check_lease(store, claim)
    claims.release(claim)
    state = claim_state(store, NAME, IDENTITY)
    assert (state.epoch, state.released) == (2, False)


def spec_of(store: Store, epoch: int, first_epoch: int = 1) -> RunSpec:
    claim = Claim(NAME, IDENTITY, epoch, first_epoch=first_epoch)
    return RunSpec(store, f"run-000{epoch}", NAME, NAME, "test/step/x", 1, claim, Fleet(), "", True)


def run_of(store: Store, epoch: int, first_epoch: int = 1) -> Run:
    return Run(spec_of(store, epoch, first_epoch), "test/step/x/a1", lambda progress: None, None, Scratch())


def test_state_is_read_from_epochs_up_to_ones_own_newest_first(store: Store) -> None:
    for epoch in (1, 2, 3):
        with run_of(store, epoch).state.write("checkpoint/data") as stream:
            stream.write(b"x" * epoch)
        run_of(store, epoch).state.create(f"only-{epoch}", b"")
    found = run_of(store, 2).state.find("*")
    assert [(file.name, file.epoch, file.size) for file in found] == [
        ("checkpoint/data", 2, 2),
        ("only-2", 2, 0),
        ("checkpoint/data", 1, 1),
        ("only-1", 1, 0),
    ]
    assert [file.epoch for file in run_of(store, 3).state.find("checkpoint/*")] == [3, 2, 1]
    assert [file.epoch for file in run_of(store, 3, first_epoch=3).state.find("checkpoint/*")] == [3]
    assert store.read(found[0].key) == b"xx"


def test_a_finish_mark_of_a_lost_lease_is_refused(store: Store) -> None:
    run = run_of(store, 1)
    elsewhere(store, epoch=2)
    with pytest.raises(LeaseLost):
        run.state.create("done", b"")
    with pytest.raises(LeaseLost):
        run.check_lease()
    assert run.state.find("done") == []


def test_a_write_of_a_lost_lease_is_refused_soon(store: Store) -> None:
    run = run_of(store, 1)
    elsewhere(store, epoch=2)
    run._lease_checked -= 60
    with pytest.raises(LeaseLost):
        run.write_bytes("file", b"")


def run(target: Text, store: Store, backend: Any = InlineBackend, **options: Any) -> Any:
    plan = make_plan([target], store)
    runner = Runner(store, plan, RunOptions(**{"retry_pause": 0.01, **options}), backend)
    return runner.run()


def test_the_first_complete_commit_wins_and_the_loser_adopts_it(store: Store, probe: Probe) -> None:
    target = upper(leaf("a", probe), probe)
    first: list[Any] = []

    class Overtaken(InlineBackend):
        """Between the end of the body and the commit, another run commits the same step."""

        def run(self, task: StepTask, report: Report) -> Outcome:
            outcome = super().run(task, report)
            if task.spec.name == "test/leaf" and not first:
                steps = [info.key for info in store.list("_steps")]
                assert steps == []
                other = open_store(f"memory://{uuid.uuid4().hex}")
                assert run(leaf("a"), other).succeeded
                (record,) = other.list("_steps")
                body = json.loads(other.read(record.key))
                for file in body["files"]:
                    store.create(file["key"], other.read(file["key"]))
                store.create(record.key, other.read(record.key))
                first.append(body)
            return outcome

    result = run(target, store, Overtaken)
    assert result.succeeded
    record = result.steps[0].step.record
    assert record.provenance["run"] == first[0]["provenance"]["run"] != result.run
    below = json.loads(store.read(result.steps[1].step.record_key))
    assert below["dependencies"][0]["output_digest"] == first[0]["output_digest"]
    assert all(store.size(file.key) == file.size for file in record.files)


def test_a_zombie_that_was_taken_over_commits_nothing_and_adopts_its_successors_result(
    store: Store, probe: Probe
) -> None:
    target = leaf("a", probe)

    class TakenOver(InlineBackend):
        """While the body runs, another run takes the claim, does the step, and releases it."""

        def run(self, task: StepTask, report: Report) -> Outcome:
            claim = task.spec.claim
            outcome = super().run(task, report)
            if claim.epoch == 1:
                usurper = Claims(store, "usurper", 1e-9)
                successor = Claim(claim.name, claim.identity, 2)
                store.create(successor.key, claim_bytes(successor, usurper.holder))
                usurper.release(successor)
            return outcome

    result = run(target, store, TakenOver)
    assert result.succeeded
    assert result.steps[0].step.record.provenance["epoch"] == 3
    assert executions(probe.tally, "leaf-a") == 2
    names = {info.key.rpartition("/")[2] for info in store.list("_claims")}
    assert {"000001.released", "000002.released", "000003.json"} <= names


def test_a_lease_that_is_lost_in_the_body_waits_for_the_new_holder(store: Store, tmp_path: Path) -> None:
    times: list[int] = []

    @step("claims/checks", version="1")
    def checks() -> Text:
        times.append(1)
        current_run().write_bytes("text.txt", b"x")
        if len(times) == 1:
            claim = current_run().spec.claim
            holder = dataclasses.replace(this_holder("other"), pid=2**22 + 1)
            successor = dataclasses.replace(claim, epoch=2)
            store.create(successor.key, claim_bytes(successor, holder))
        current_run().check_lease()
        return Text(text="x")

    result = run(checks(), store)
    assert result.succeeded
    assert len(times) == 2
    assert store.list("_failed") == []


def test_a_claim_that_is_absent_is_free(store: Store) -> None:
    assert claim_state(store, NAME, IDENTITY).holder is None
    with pytest.raises(MissingObject):
        store.read("_claims/test.step-aaaaaaaaaa/000001.json")
    assert taken(Claims(store, "one", 60)).epoch == 1
