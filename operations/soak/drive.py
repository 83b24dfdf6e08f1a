"""One driver process of a campaign: plans a graph over a store with faults, runs it, and says what became of it.

python operations/soak/drive.py PREFIX GRAPH LEDGER [--stale 2] [--skew 3600] [--force soak/source] [--rules FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from marin.execution import Runner, RunOptions, RunResult, make_plan
from marin.execution.running import claims
from marin.execution.running.inline import InlineBackend
from marin.execution.running.patience import PatientStore
from marin.storage import open_store
from operations.soak.faults import Fault, FaultyStore, Rule
from operations.soak.graph import GRAPHS, Ledger


@dataclass(frozen=True)
class Drive:
    """What a driver is to do.

    `skew` is how many seconds its wall clock is ahead of everybody else's. A driver `elsewhere` looks as if it were on
    another machine: whether it lives shows in its heartbeat only.
    """

    prefix: str
    graph: str
    ledger: Ledger
    rules: tuple[Rule, ...] = ()
    stale_after: float = 2.0
    skew: float = 0.0
    force: str | None = None
    max_concurrent: int = 4
    elsewhere: bool = False

    def run(self) -> RunResult:
        """Plan and run; raises what the planning raises."""
        if self.skew:
            _skew_clock(self.skew)
        if self.elsewhere:
            namespace = f"elsewhere:{uuid.uuid4().hex}"
            claims._pid_namespace = lambda: namespace
        store = FaultyStore(open_store(self.prefix), self.rules)
        patient = PatientStore(store, threading.Event())
        plan = make_plan([GRAPHS[self.graph](self.ledger)], patient, force=self.force)
        options = RunOptions(stale_after=self.stale_after, retry_pause=0.05, max_concurrent=self.max_concurrent)
        return Runner(store, plan, options, InlineBackend).run()


def _skew_clock(seconds: float) -> None:
    """Put this process's wall clock ahead. Its monotonic clock counts from no particular time anyway."""
    true_time, true_gmtime = time.time, time.gmtime

    def skewed_gmtime(since: Any = None) -> time.struct_time:
        return true_gmtime(true_time() + seconds if since is None else since)

    time.time = lambda: true_time() + seconds
    time.gmtime = skewed_gmtime


def rules_to_json(rules: Sequence[Rule]) -> str:
    """Rules as text, for a command line."""
    return json.dumps([{**vars(rule), "fault": rule.fault.name, "kinds": sorted(rule.kinds)} for rule in rules])


def rules_of_json(text: str) -> tuple[Rule, ...]:
    """The rules of such a text."""
    return tuple(
        Rule(**{**body, "fault": Fault[body["fault"]], "kinds": frozenset(body["kinds"])}) for body in json.loads(text)
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the driver; prints one JSON line; exit code 0 when everything is there."""
    parser = argparse.ArgumentParser(description="run a graph of the campaigns in one driver process")
    parser.add_argument("prefix")
    parser.add_argument("graph", choices=sorted(GRAPHS))
    parser.add_argument("ledger")
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--hold", default="")
    parser.add_argument("--rules", default="[]", help="faults as JSON")
    parser.add_argument("--stale", type=float, default=2.0)
    parser.add_argument("--skew", type=float, default=0.0)
    parser.add_argument("--force")
    parser.add_argument("--elsewhere", action="store_true")
    request = parser.parse_args(arguments)
    ledger = Ledger(request.ledger, request.pause, request.hold)
    rules = rules_of_json(request.rules)
    drive = Drive(
        request.prefix,
        request.graph,
        ledger,
        rules,
        request.stale,
        request.skew,
        request.force,
        elsewhere=request.elsewhere,
    )
    result = drive.run()
    statuses = {progress.step.display: progress.status.name for progress in result.steps}
    failures = [p.failure.trace for p in result.failures if p.failure is not None]
    line = {"run": result.run, "statuses": statuses, "failures": failures, "interrupted": result.interrupted}
    print(json.dumps(line), flush=True)
    return 0 if result.succeeded else 1


if __name__ == "__main__":
    sys.exit(main())
