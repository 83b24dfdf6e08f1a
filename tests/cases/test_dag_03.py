"""dag-03: a claim left behind does not block, and an owner can always finish.

Two drivers at once, a killed and an interrupted driver are in tests/execution/running/test_drivers.py; the rest is
here.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from marin.execution import Runner, RunOptions, make_plan
from marin.execution.running.claims import Claims, claim_state
from marin.execution.running.inline import InlineBackend
from marin.execution.running.tasks import Report
from marin.execution.running.worker import Outcome, StepTask
from marin.storage import Store, open_store
from tests.execution.graphs import Probe, failing, leaf


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "prefix")


def test_a_step_that_raised_leaves_its_claim_free(store: Store) -> None:
    plan = make_plan([failing("bug", None, Probe())], store)
    result = Runner(store, plan, RunOptions(), InlineBackend).run()
    assert result.failures
    state = claim_state(store, plan.steps[0].name, plan.steps[0].identity)
    assert (state.epoch, state.released) == (1, True)


def test_an_owner_whose_heartbeat_paused_finishes_without_an_error_when_nobody_took_over(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Claims, "beat", lambda self: None)

    class Slow(InlineBackend):
        def run(self, task: StepTask, report: Report) -> Outcome:
            time.sleep(0.4)
            return super().run(task, report)

    result = Runner(store, make_plan([leaf("a")], store), RunOptions(stale_after=0.1), Slow).run()
    assert result.succeeded
    assert store.list("_failed") == []


def test_a_released_claim_that_races_with_readers_never_raises(store: Store) -> None:
    for _ in range(30):
        claims = Claims(store, "one", 60)
        claim = claims.take("test/step", "a" * 64)
        assert not hasattr(claim, "host")
        claims.release(claim)  # type: ignore[arg-type]
        assert claim_state(store, "test/step", "a" * 64).released
