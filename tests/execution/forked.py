"""Driver processes that are forked from a clean one, so that hundreds of them can die in a test.

They run on local stores without fsync: what is tested is the death of processes, not of machines.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
import uuid
from collections.abc import Iterable
from multiprocessing.process import BaseProcess
from pathlib import Path

from marin.execution import Runner, RunOptions, make_plan
from marin.execution.inline import InlineBackend
from marin.storage import open_store
from operations.soak import invariants
from operations.soak.drive import Drive
from operations.soak.graph import GRAPHS, open_ledger

DRIVER_SECONDS = 60.0
KILLED = -signal.SIGKILL

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["operations.soak.drive"])


def _drive(drive: Drive) -> None:
    os.fsync = lambda descriptor: None  # type: ignore[assignment]
    sys.exit(0 if drive.run().succeeded else 1)


class Forked:
    """A driver process; killed at the end of a `with` block that it outlives."""

    def __init__(self, drive: Drive) -> None:
        self.process: BaseProcess = _forks.Process(target=_drive, args=(drive,))
        self.process.start()

    def ended(self) -> int:
        """The exit code, once the driver has ended."""
        self.process.join(DRIVER_SECONDS)
        if self.process.exitcode is None:
            raise AssertionError(f"a driver did not end in {DRIVER_SECONDS} s")
        return self.process.exitcode

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *details: object) -> None:
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()


def driven(drive: Drive) -> int:
    """The exit code of a driver process."""
    with Forked(drive) as forked:
        return forked.ended()


def undisturbed(folder: Path, graph: str = "small", text: str = "one") -> dict[str, str]:
    """What a graph comes to when nothing happens: output digests by step."""
    store = open_store(f"memory://{uuid.uuid4().hex}")
    plan = make_plan([GRAPHS[graph](open_ledger(folder, text))], store)
    assert Runner(store, plan, RunOptions(), InlineBackend).run().succeeded
    return invariants.outputs(store)


def noted(ledger: Path, what: Iterable[str], epoch: int, seconds: float = 20.0) -> None:
    """Return once a holder of this epoch has begun each of these (`step+part`, by the step's name)."""
    deadline = time.monotonic() + seconds
    while True:
        names = [path.name for path in (ledger / "executions").iterdir()]
        if all(
            any(n.startswith(one.partition("+")[0]) and f"{one.partition('+')[2]}@{epoch}." in n for n in names)
            for one in what
        ):
            return
        assert time.monotonic() < deadline, f"{list(what)} did not begin in epoch {epoch} within {seconds} s: {names}"
        time.sleep(0.02)
