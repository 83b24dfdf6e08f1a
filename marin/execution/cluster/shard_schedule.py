"""Which shard of a `run.map` is started next: in order, again after a loss, or a second time when it lags behind.

Knows no Ray and no clock of its own, so that what is decided can be read and tested.
"""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from marin.execution.failures import RETRY_BUDGET, FailureClass
from marin.execution.running.tasks import ShardTask


@dataclass(frozen=True)
class ShardPolicy:
    """How shards are run; never part of an identity, as every shard gives the same outcome wherever it runs.

    A shard is a straggler when it has run `straggler_factor` times as long as the median of the finished ones and at
    least `straggler_seconds`. A failed shard is tried again after `pause_seconds`, doubled each time up to
    `pause_limit`. `worker_memory_gb` is what a worker may hold on to after a shard that declares no memory, None for
    its node's share.
    """

    straggler_factor: float = 3.0
    straggler_seconds: float = 30.0
    pause_seconds: float = 1.0
    pause_limit: float = 60.0
    worker_memory_gb: float | None = None

    def pause(self, tries: int) -> float:
        """Seconds before the next try."""
        return min(self.pause_seconds * 2.0 ** (tries - 1), self.pause_limit)


@dataclass
class _Shard:
    """One shard so far. Of its `copies`, which run or wait for a worker, the oldest running one began at `begun`."""

    task: ShardTask
    copies: int = 0
    begun: float | None = None
    repeated: bool = False
    tries: dict[FailureClass, int] = field(default_factory=dict)


class ShardSchedule:
    """The shards of one map. Times are seconds on any one clock."""

    def __init__(self, tasks: Sequence[ShardTask], policy: ShardPolicy) -> None:
        self._policy = policy
        self._unfinished = {task.index: _Shard(task) for task in tasks}
        self._running: dict[int, _Shard] = {}
        self._waiting = [(0.0, place, task.index) for place, task in enumerate(tasks)]
        self._places = len(tasks)
        self._durations: list[float] = []

    @property
    def unfinished(self) -> bool:
        """Whether there is a shard without an outcome."""
        return bool(self._unfinished)

    def next(self, now: float) -> ShardTask | None:
        """The shard to start, if one may start already."""
        if not self._waiting or self._waiting[0][0] > now:
            return None
        _, _, index = heapq.heappop(self._waiting)
        shard = self._running[index] = self._unfinished[index]
        shard.copies = 1
        return shard.task

    def straggler(self, now: float) -> ShardTask | None:
        """A shard to start a second time: it lags far behind, and nothing waits any more, here or for a worker."""
        if self._waiting or not self._durations or any(shard.begun is None for shard in self._running.values()):
            return None
        limit = max(self._policy.straggler_seconds, self._policy.straggler_factor * statistics.median(self._durations))
        for shard in self._running.values():
            if shard.begun is not None and not shard.repeated and now - shard.begun > limit:
                shard.repeated = True
                shard.copies += 1
                return shard.task
        return None

    def wait(self, now: float, tick: float) -> float:
        """Seconds until there may be something to start, at most `tick`."""
        return max(0.0, min(tick, self._waiting[0][0] - now)) if self._waiting else tick

    def began(self, index: int, now: float) -> None:
        """A copy of a shard has a worker."""
        shard = self._running[index]
        if shard.begun is None:
            shard.begun = now

    def finished(self, index: int, seconds: float) -> None:
        """A copy brought the shard's outcome, after so long. Nothing is to be said of its other copies any more."""
        del self._running[index], self._unfinished[index]
        self._durations.append(seconds)

    def failed(self, index: int, kind: FailureClass, now: float) -> bool:
        """A copy failed; whether that is forgiven: another copy runs on, or the shard is tried again after a pause."""
        shard = self._running[index]
        shard.copies -= 1
        budget = RETRY_BUDGET.get(kind, 0)
        if budget and shard.copies:
            return True
        shard.tries[kind] = tries = shard.tries.get(kind, 0) + 1
        if tries > budget:
            return False
        del self._running[index]
        shard.begun, shard.repeated = None, False
        self._places += 1
        heapq.heappush(self._waiting, (now + self._policy.pause(tries), self._places, index))
        return True
