"""What tests of dying drivers compare with, and wait for."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from pathlib import Path

from marin.execution import Runner, RunOptions, make_plan
from marin.execution.running.inline import InlineBackend
from marin.storage import open_store
from operations.soak import invariants
from operations.soak.graph import GRAPHS, open_ledger


def undisturbed(folder: Path, graph: str = "small", text: str = "one") -> dict[str, str]:
    """What a graph comes to when nothing happens: output digests by step."""
    store = open_store(f"memory://{uuid.uuid4().hex}")
    plan = make_plan([GRAPHS[graph](open_ledger(folder, text))], store)
    assert Runner(store, plan, RunOptions(), InlineBackend).run().succeeded
    return invariants.outputs(store)


def await_begun(ledger: Path, step: str, epoch: int, parts: Iterable[str] = ("",), seconds: float = 20.0) -> None:
    """Return once a holder of this epoch has begun these parts of a step."""
    wanted = {(part, epoch) for part in parts}
    deadline = time.monotonic() + seconds
    while not wanted <= {(one.part, one.epoch) for one in invariants.notes(ledger) if one.step.startswith(step)}:
        assert time.monotonic() < deadline, f"{step} did not begin in epoch {epoch} within {seconds} s"
        time.sleep(0.02)
