"""Lets the ranks of this machine save before it goes away: `python -m marin.execution.cluster.leave --seconds 50`.

For whatever a cluster runs on a node before it ends it, such as a pod's `preStop` hook: every rank's process gets
SIGTERM, which it takes for the request to save and to end, and the command returns when they are gone. Imports no Ray.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence

TITLE = "ray::RankProcess"
LOOK_SECONDS = 0.2


def rank_processes() -> list[int]:
    """The ranks of all gangs on this machine, by the title that Ray gives their processes."""
    import psutil

    found = []
    for process in psutil.process_iter(["pid", "cmdline"]):
        words = process.info["cmdline"] or [""]
        if words[0].startswith(TITLE):
            found.append(process.pid)
    return found


def leave(seconds: float) -> bool:
    """Ask every rank of this machine to save and to end; whether all did in time. What comes later is asked too."""
    import psutil

    asked: set[int] = set()
    deadline = time.monotonic() + seconds
    while ranks := rank_processes():
        if time.monotonic() > deadline:
            return False
        for pid in set(ranks) - asked:
            try:
                psutil.Process(pid).send_signal(signal.SIGTERM)
            except psutil.NoSuchProcess:
                continue
            asked.add(pid)
        time.sleep(LOOK_SECONDS)
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 when ranks are left."""
    parser = argparse.ArgumentParser(description="let the ranks of this machine save, and wait until they have ended")
    parser.add_argument("--seconds", type=float, default=50.0)
    return 0 if leave(parser.parse_args(arguments).seconds) else 1


if __name__ == "__main__":
    sys.exit(main())
