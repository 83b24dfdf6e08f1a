"""A redo beside a run that was planned before it: when both have ended, nothing rests on the old output."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from marin.execution import Runner, RunOptions, make_plan
from marin.execution.running.inline import InlineBackend
from marin.storage import open_store
from operations.soak import invariants
from operations.soak.drive import Drive
from operations.soak.faults import Fault, Rule
from operations.soak.forks import Forked
from operations.soak.graph import open_ledger, source
from tests.execution.running.forked import undisturbed
from tests.storage.backends import wait_for


@pytest.mark.parametrize("held", ["create", "write"])
def test_a_redo_does_not_take_what_an_earlier_plan_made_from_the_old_output(tmp_path: Path, held: str) -> None:
    """The earlier run has the maps in hand, made from the first output of their source, while that is redone."""
    prefix, go = tmp_path / "prefix", tmp_path / "go"
    ledger = open_ledger(tmp_path / "ledger", "one")
    store = open_store(prefix)
    first = make_plan([source("small", ledger)], store)
    assert Runner(store, first, RunOptions(), InlineBackend).run().succeeded
    keys = {"create": "_steps/soak.digests", "write": "soak/digests"}[held]
    rules = tuple(Rule(Fault.hold, frozenset({held}), keys=keys, at=number, until=str(go)) for number in (1, 2))
    with Forked(Drive(str(prefix), "small", ledger, rules)) as earlier:
        wait_for(
            lambda: (
                {note.step[:12] for note in invariants.notes(Path(ledger.folder))} == {"soak.source-", "soak.digests"}
            )
        )
        time.sleep(0.5)
        open_ledger(tmp_path / "ledger", "two")
        with Forked(Drive(str(prefix), "small", ledger, force="soak/source")) as redo:
            wait_for(lambda: list(prefix.glob("_steps/soak.source-*.r2.json")) != [])
            time.sleep(0.5)
            go.touch()
            assert (earlier.ended(), redo.ended()) == (0, 0)
    assert invariants.damage(store) == []
    assert invariants.stale(store) == []
    assert invariants.outputs(store) == undisturbed(tmp_path / "undisturbed", text="two")
