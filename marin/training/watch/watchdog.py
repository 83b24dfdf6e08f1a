"""Ends a rank that makes no progress, after its stacks and those of the other ranks are in the store.

A thread of every rank looks at the phases of the loop. It works while the main thread hangs in a collective. When a
phase outlasts its budget it writes what the rank is doing to `stalls/` of the resumable state, waits for the files of
the other ranks (which hang in the same collective, or are the cause), and lets the gang be killed and started again:
`run.give_up(Stalled(…))`, or where nobody takes that (torchrun), the exit code `EXIT_CODE`. A thread of Python cannot
run while other code holds the interpreter's lock: for that case faulthandler prints the stacks to standard error
without Python, and ends the process.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from marin.checkpoint.state_folder import StateFolder
from marin.execution import Stalled, StepError
from marin.training.hooks import Hook
from marin.training.watch.config import StallBudgets
from marin.training.watch.folders import STALLS
from marin.training.watch.forensics import report

if TYPE_CHECKING:
    from marin.training.loop import TrainingLoop

EXIT_CODE = 70
"""Of a rank that stalled and that nobody else ends: EX_SOFTWARE of sysexits.h."""
LOOK_SECONDS = 1.0
WRITE_SECONDS = 30.0
"""How long the store may take for a rank's report; it may be the store that hangs."""
END_SECONDS = 20.0
"""How long the gang may take to end a rank that gave up, before it ends itself."""
FROZEN_FACTOR = 2.0
"""No interpreter holds its lock for so many budgets and lives."""

logger = logging.getLogger(__name__)


class Watchdog(Hook):
    """`world_size` ranks each have one, with equal budgets. `begin` starts the watch; `close` ends it."""

    def __init__(
        self,
        budgets: StallBudgets,
        state: StateFolder,
        *,
        rank: int,
        world_size: int,
        life: str,
        give_up: Callable[[BaseException], None] | None = None,
    ) -> None:
        self.name = ""
        self._budgets = budgets
        self._state = state
        self._rank = rank
        self._world_size = world_size
        self._life = life
        self._give_up = give_up
        self._minutes: Mapping[str, float] = {
            "validation": budgets.validation_minutes,
            "checkpoint": budgets.checkpoint_minutes,
        }
        least = min(budgets.startup_minutes, budgets.step_minutes, *self._minutes.values())
        self._look = min(LOOK_SECONDS, least * 60 / 5)
        self._loop: TrainingLoop | None = None
        self._started = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="marin-watchdog", daemon=True)

    def begin(self) -> None:
        """Starts to watch; a restore and the first step have the budget of a start."""
        self._thread.start()

    def start(self, loop: TrainingLoop) -> None:
        self._loop = loop

    def after_update(self, step: int) -> None:
        self._started = True

    def close(self) -> None:
        self._closed.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def _place(self) -> tuple[str, int]:
        """The phase, and a number that grows while anything goes on."""
        loop = self._loop
        if loop is None:
            return "start-up", 0
        return loop.clock.current or "between phases", loop.clock.changes

    def _budget_seconds(self, phase: str) -> float:
        if not self._started:
            return 60 * self._budgets.startup_minutes
        return 60 * self._minutes.get(phase, self._budgets.step_minutes)

    def _watch(self) -> None:
        seen, still = self._place(), 0.0
        longest = 60 * max(self._budgets.startup_minutes, self._budgets.step_minutes, *self._minutes.values())
        stream = sys.__stderr__
        try:
            while True:
                if stream is not None:
                    faulthandler.dump_traceback_later(FROZEN_FACTOR * longest, exit=True, file=stream)
                if self._closed.wait(self._look):
                    return
                # Ticks are counted, not a clock: a process that was stopped and goes on has not stalled.
                place = self._place()
                still = still + self._look if place == seen else 0.0
                seen = place
                if still >= self._budget_seconds(place[0]):
                    self._end(place[0], still)
                    return
        finally:
            faulthandler.cancel_dump_traceback_later()

    def _end(self, phase: str, seconds: float) -> None:
        step = self._loop.step + 1 if self._loop is not None else 0
        message = (
            f"rank {self._rank} made no progress for {seconds:.0f} s in {phase} of step {step}; the stacks of all "
            f"ranks are in {STALLS}/ of the run's state"
        )
        logger.error("%s", message)
        facts = {"rank": self._rank, "step": step, "phase": phase, "seconds": round(seconds, 1), "life": self._life}
        name = f"{STALLS}/step-{step:08d}-rank-{self._rank:04d}-{self._life}.txt"
        self._write(name, report(facts, self._loop))
        self._wait_for_the_others()
        if self._closed.is_set():
            return
        if self._give_up is not None:
            try:
                self._give_up(Stalled(message))
                if self._closed.wait(END_SECONDS):
                    return
            except StepError:
                logger.info("no gang ends this rank; it ends itself with exit code %d", EXIT_CODE)
        sys.stderr.flush()
        os._exit(EXIT_CODE)

    def _write(self, name: str, text: str) -> None:
        """In a thread of its own, since the store may be what hangs; its text goes to standard error in that case."""
        done = threading.Event()

        def write() -> None:
            try:
                with self._state.write(name) as sink:
                    sink.write(text.encode())
                done.set()
            except Exception as error:  # whatever a store client raises: the rank must end all the same
                logger.error("the report of a stall cannot be written: %s", error)

        threading.Thread(target=write, name="marin-stall-report", daemon=True).start()
        if not done.wait(WRITE_SECONDS):
            print(text, file=sys.stderr, flush=True)

    def _wait_for_the_others(self) -> None:
        """Until every rank's report of this stall is there, or the time for it is over."""
        until = time.monotonic() + self._budgets.together_seconds
        while time.monotonic() < until and not self._closed.wait(self._look):
            try:
                there = self._state.find(f"{STALLS}/*-{self._life}.txt")
            except Exception as error:
                logger.error("the reports of the other ranks cannot be listed: %s", error)
                return
            if len(there) >= self._world_size:
                return
