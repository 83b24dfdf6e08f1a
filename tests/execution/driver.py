"""A driver process: `python -m tests.execution.driver PREFIX GRAPH TALLY [--hold FILE] [--ray | --slow-start FILE] …`.

Prints one JSON line of what became of each step. Exit code 0 for success, 1 for failure, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from marin.execution import Runner, RunOptions, make_plan
from marin.execution.running.inline import Backend, InlineBackend
from marin.storage import open_store
from tests.execution.graphs import Probe, graph

ROOT = Path(__file__).parents[2]


def ray_backend() -> Backend:
    """Ray, embedded in this process."""
    from marin.execution.cluster.backend import RayBackend

    return RayBackend()


def main() -> None:
    """Run a graph."""
    parser = argparse.ArgumentParser()
    parser.add_argument("prefix")
    parser.add_argument("graph")
    parser.add_argument("tally")
    parser.add_argument("--hold", default="")
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--slow-start", default="", help="make this file, and take seconds to start the back end")
    parser.add_argument("--stale", type=float, default=90.0)
    request = parser.parse_args()
    store = open_store(request.prefix)
    plan = make_plan([graph(request.graph, Probe(request.tally, request.hold))], store)
    options = RunOptions(stale_after=request.stale)

    def slow_start() -> Backend:
        Path(request.slow_start).touch()
        time.sleep(2.0)
        return InlineBackend()

    backend = ray_backend if request.ray else slow_start if request.slow_start else InlineBackend
    result = Runner(store, plan, options, backend).run()
    statuses = {p.step.display: p.status.name for p in result.steps}
    print(json.dumps({"statuses": statuses, "interrupted": result.interrupted}), flush=True)
    sys.exit(130 if result.interrupted else 0 if result.succeeded else 1)


class Driver:
    """A driver process that a test started."""

    def __init__(self, prefix: Path, graph: str, tally: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "tests.execution.driver", str(prefix), graph, str(tally), *arguments]
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
        )

    def finish(self, seconds: float = 90.0) -> tuple[int, dict[str, Any], str]:
        """(exit code, what it printed, its standard error), when it has ended."""
        try:
            out, err = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
            raise AssertionError(f"the driver did not end in {seconds} s:\n{out}\n{err}") from None
        lines = [line for line in out.splitlines() if line.startswith("{")]
        return self.process.returncode, json.loads(lines[-1]) if lines else {}, err

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *details: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


if __name__ == "__main__":
    main()
