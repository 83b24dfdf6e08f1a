"""Which steps of a run may start: those whose upstreams are done, and no more at once than there is room for."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable

from marin.execution.running.progress import BROKEN, Progress, Status


class Schedule:
    """The order of a run. Each step costs a little once, whatever the size of the graph. Used from one thread.

    Of the steps at work, at most `small_at_once` are inline. They are short pieces of Python in this process: on a
    local disk several at a time would only take the interpreter from each other.
    """

    def __init__(self, steps: Iterable[Progress], at_once: int, small_at_once: int, *, fail_fast: bool = False) -> None:
        self._steps = {id(progress.step): progress for progress in steps}
        self._room = {True: small_at_once, False: at_once}
        self._at_once = at_once
        self._fail_fast = fail_fast
        self._at_work = {True: 0, False: 0}
        self._ready: dict[bool, deque[Progress]] = {True: deque(), False: deque()}
        self._waiting: list[Progress] = []
        self._dependents: dict[int, list[Progress]] = {key: [] for key in self._steps}
        self._missing: dict[int, int] = {}
        for key, progress in self._steps.items():
            above = [id(up) for up in progress.step.upstream if id(up) in self._steps]
            self._missing[key] = len(above)
            for one in above:
                self._dependents[one].append(progress)
            if not above:
                self._make_ready(progress)

    @property
    def is_over(self) -> bool:
        """Whether nothing is at work, nothing can start, and nothing waits for another run."""
        return not (any(self._at_work.values()) or any(self._ready.values()) or self._waiting)

    def next(self) -> Progress | None:
        """A step to start at once, which is at work from now on; None when there is none or no room."""
        self._look_again()
        for small, ready in self._ready.items():
            if ready and self._at_work[small] < self._room[small] and sum(self._at_work.values()) < self._at_once:
                self._at_work[small] += 1
                return ready.popleft()
        return None

    def ended(self, progress: Progress) -> list[Progress]:
        """Take in what became of a step that was at work; returns the steps that are blocked by it."""
        self._at_work[_is_small(progress)] -= 1
        if progress.status is Status.waiting:
            self._waiting.append(progress)
            return []
        if progress.status in BROKEN:
            return self._block(progress)
        for below in self._dependents[id(progress.step)]:
            self._missing[id(below.step)] -= 1
            if not self._missing[id(below.step)] and below.status is Status.pending:
                self._make_ready(below)
        return []

    def _make_ready(self, progress: Progress) -> None:
        self._ready[_is_small(progress)].append(progress)

    def _look_again(self) -> None:
        """Make steps ready that another run has, when it is time to look at them again."""
        now = time.monotonic()
        for progress in [one for one in self._waiting if one.poll_at <= now]:
            self._waiting.remove(progress)
            self._make_ready(progress)

    def _block(self, broken: Progress) -> list[Progress]:
        """Block everything that depends on a step that will have no record; with fail_fast, all that has not begun."""
        blocked: list[Progress] = []
        stack = [broken]
        while stack:
            above = stack.pop()
            for below in self._dependents[id(above.step)]:
                if below.status is Status.pending:
                    below.status, below.blocked_by = Status.blocked, above.step.display
                    blocked.append(below)
                    stack.append(below)
        if self._fail_fast:
            idle = [*self._waiting, *self._ready[True], *self._ready[False]]
            idle += [progress for progress in self._steps.values() if progress.status is Status.pending]
            for progress in dict.fromkeys(idle):
                progress.status, progress.blocked_by = Status.blocked, "--fail-fast"
                blocked.append(progress)
            self._waiting.clear()
            for ready in self._ready.values():
                ready.clear()
        return blocked


def _is_small(progress: Progress) -> bool:
    return progress.step.call.step.inline
