"""A lease that is lost ends the work under it."""

from __future__ import annotations

import dataclasses
import threading
import time

import pytest

from marin.execution import Runner, RunOptions, current_run, make_plan, step
from marin.execution.running import watch
from marin.execution.running.claims import Claim, claim_bytes, claim_state, this_holder
from marin.execution.running.inline import InlineBackend
from marin.execution.running.watch import LeaseWatch
from marin.storage import Store
from tests.execution.graphs import Text


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LEASE_SECONDS", 0.05)


def take_over(store: Store, claim: Claim) -> None:
    """What another run does that takes this one for dead, and then dies itself."""
    successor = dataclasses.replace(claim, epoch=claim.epoch + 1)
    gone = dataclasses.replace(this_holder("other"), pid=2**22 + 1)
    store.create(successor.key, claim_bytes(successor, gone))


def test_a_step_that_only_computes_is_ended_when_its_lease_is_lost(store: Store) -> None:
    ended: list[int] = []
    starts: list[int] = []

    @step("lease/computes", version="1", inline=True)
    def computes() -> Text:
        run = current_run()
        starts.append(run.spec.claim.epoch)
        if len(starts) == 1:
            take_over(store, run.spec.claim)
            deadline = time.monotonic() + 30
            try:
                while time.monotonic() < deadline:
                    run.progress(0, 1)
                    time.sleep(0.01)
            finally:
                ended.append(1)
        return Text(text="second")

    started = time.monotonic()
    result = Runner(store, make_plan([computes()], store), RunOptions(), InlineBackend).run()
    assert result.succeeded
    assert time.monotonic() - started < 15
    assert starts == [1, 3] and ended == [1]
    assert store.list("_failed") == []


def test_a_long_stream_is_ended_in_the_middle_when_its_lease_is_lost(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from marin.execution.running import context

    monkeypatch.setattr(context, "LEASE_CHECK_SECONDS", 0.05)
    written: list[int] = []

    @step("lease/streams", version="1", inline=True)
    def streams() -> Text:
        run = current_run()
        first = not written
        if first:
            take_over(store, run.spec.claim)
        with run.write("big.bin") as stream:
            for number in range(1000 if first else 3):
                stream.write(b"x" * 100)
                written.append(number)
                time.sleep(0.01 if first else 0)
        return Text(text="done")

    result = Runner(store, make_plan([streams()], store), RunOptions(), InlineBackend).run()
    assert result.succeeded
    assert len(written) < 500
    (record,) = [progress.step.record for progress in result.steps]
    assert record is not None and [file.size for file in record.files] == [300]
    assert [info.size for info in store.list("lease/streams") if info.key.endswith("big.bin")] == [300]


def test_a_claim_that_stands_is_left_alone_and_one_that_was_given_up_is_not_looked_at(store: Store) -> None:
    lost: list[Claim] = []
    leases = LeaseWatch(store, lambda claim, backend: lost.append(claim))
    leases.start()
    standing, over, given_up = (Claim("lease/one", name * 64, 1) for name in "abc")
    backend = InlineBackend()
    for claim in (standing, over, given_up):
        store.create(claim.key, claim_bytes(claim, this_holder("mine")))
        leases.add(claim, backend)
    assert leases.remove(given_up) is None
    take_over(store, over)
    take_over(store, given_up)
    deadline = time.monotonic() + 10
    while not lost and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)
    leases.stop()
    assert lost == [over]
    assert leases.remove(standing) is None
    assert "taken over" in str(leases.remove(over))
    assert not any(thread.name == "marin-leases" for thread in threading.enumerate())
    assert claim_state(store, "lease/one", "a" * 64).epoch == 1
