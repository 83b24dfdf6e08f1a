"""Ending early in good order: who asks, how the ranks agree, and what the process then ends with.

A request comes from whoever runs the rank (a node that is asked back), or as SIGTERM or SIGINT to any rank's process.
The ranks agree on it at the next border of a unit of work, a step or a batch of an evaluation: the state after the
last finished step is saved and every rank raises `Preempted`, which is tried again like any loss of a worker. A
machine may be gone 30 s after its notice; when the save does not make that, the last complete checkpoint counts.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from marin.execution import StopRequest
from marin.training.process_group import RankContext

EXIT_CODE = 75
"""Of a process that was stopped and saved: EX_TEMPFAIL of sysexits.h, "try again later"."""
SAME_KEYSTROKE_SECONDS = 3.0
"""Ctrl-C reaches a rank from the terminal and again from its launcher; only a later one is meant as a second one."""


class StopAgreed(Exception):
    """All ranks know that the run is to end: raised on each of them at the same border."""


def agree_to_stop(ranks: RankContext, reason: str | None) -> None:
    """Raises StopAgreed on every rank when one of them gives a reason; a collective of one number."""
    if ranks.largest(reason is not None):
        raise StopAgreed(told_by_all(ranks, reason))


def told_by_all(ranks: RankContext, reason: str | None) -> str:
    """The reasons of all ranks in one line; collective."""
    reasons = enumerate(ranks.ranks.gather(reason))
    return "; ".join(f"rank {rank}: {told}" for rank, told in reasons if told is not None)


@contextmanager
def signals_to(stop: StopRequest) -> Iterator[None]:
    """Within the block SIGTERM and SIGINT set the request, where this is the main thread; elsewhere nothing changes.

    A second Ctrl-C, some seconds after the first, ends the process at once, without a save.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    first_interrupt: list[float] = []

    def ask(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            if first_interrupt and time.monotonic() - first_interrupt[0] > SAME_KEYSTROKE_SECONDS:
                raise KeyboardInterrupt
            first_interrupt.append(time.monotonic())
        stop.set(f"it got {signal.Signals(number).name}")

    previous = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
