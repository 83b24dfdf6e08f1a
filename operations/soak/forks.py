"""Driver processes that are forked from a clean one: they start in milliseconds, so that thousands can die.

They do not call fsync: what is tried is the death of processes, not of machines.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from multiprocessing.process import BaseProcess

from operations.soak.drive import Drive

DRIVER_SECONDS = 60.0
KILLED = -signal.SIGKILL

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["operations.soak.drive"])


class Stuck(Exception):
    """A driver did not come to an end."""


def _drive(drive: Drive, environment: dict[str, str], quiet: bool) -> None:
    os.environ.update(environment)  # where the process was forked, it may be an older one
    os.fsync = lambda fd: None
    if quiet:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    sys.exit(0 if drive.run().succeeded else 1)


class Forked:
    """A driver process; killed at the end of a `with` block that it outlives. A `quiet` one has no standard error."""

    def __init__(self, drive: Drive, *, quiet: bool = False) -> None:
        self.process: BaseProcess = _forks.Process(target=_drive, args=(drive, dict(os.environ), quiet))
        self.process.start()

    @property
    def pid(self) -> int:
        """The process id."""
        assert self.process.pid is not None
        return self.process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it still runs, or is stopped."""
        return self.process.is_alive()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the driver has ended."""
        if self.process.is_alive():
            os.kill(self.pid, number)

    def ended(self, seconds: float = DRIVER_SECONDS) -> int:
        """The exit code, once the driver has ended; raises `Stuck` when it does not."""
        self.process.join(seconds)
        if self.process.exitcode is None:
            raise Stuck(f"the driver {self.pid} did not end in {seconds:g} s")
        return self.process.exitcode

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *details: object) -> None:
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()


def driven(drive: Drive, *, quiet: bool = False) -> int:
    """The exit code of a driver process that runs to its end."""
    with Forked(drive, quiet=quiet) as forked:
        return forked.ended()
