"""The shards of a step as Ray tasks, started from the step's own task.

A shard says when it begins, and at its end what came out and how much memory its worker holds. A worker that has grown
beyond its limit is replaced: a shard that is sent to a function of one call ends its worker after it. Shards that lag
far behind are started a second time; whichever copy leaves the finish mark first, both have its outcome.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import psutil
import ray

from marin.execution.captured_log import captured_log
from marin.execution.context import RunSpec, ShardOutcome, ShardTask, run_shard
from marin.execution.failures import FailureClass, StepError
from marin.execution.inline import ignore_progress
from marin.execution.nodes import Standard, this_node
from marin.execution.ray_failures import ray_failure
from marin.execution.resources import GB, demand_of, is_fixed, missing_resources, node_resources, options_of
from marin.execution.scratch import scratch_folder
from marin.execution.secrets import SecretValues
from marin.execution.shard_schedule import ShardPolicy, ShardSchedule
from marin.execution.streams import Message, messages_of
from marin.execution.worker import Failure, StepFailed, failure_of

ELASTIC_BACKLOG = 64
"""Shards that wait in Ray on a cluster that may grow, so that it sees what is wanted."""
TICK_SECONDS = 1.0
RESIZE_SECONDS = 5.0

logger = logging.getLogger(__name__)

Worker = tuple[str, int]
"""A worker process: its node and its number there."""


def _shard_messages(common: tuple[RunSpec, Standard], secrets: SecretValues, task: ShardTask) -> Iterator[Message]:
    """A shard's task: says that it begins, then what became of it, its log, and its worker's memory in bytes."""
    bare, standard = common

    def work(send: Callable[[Message], None]) -> None:
        result: ShardOutcome | Failure
        with captured_log() as log, scratch_folder() as scratch:
            try:
                standard.check_here(bare)
                result = run_shard(replace(bare, secrets=secrets), task, scratch, ignore_progress)
            except BaseException as error:
                result = failure_of(error)
            text = log.getvalue()
        send(("ended", (result, text, psutil.Process().memory_info().rss)))

    yield "began", (this_node(), os.getpid())
    yield from messages_of(work)


_shard = ray.remote(max_retries=0)(_shard_messages)
_last_shard = ray.remote(max_retries=0, max_calls=1)(_shard_messages)


@dataclass
class _Copy:
    """A shard's task in Ray. `last` ones end their worker."""

    task: ShardTask
    last: bool
    worker: Worker | None = None
    began: float = 0.0


class ShardMap:
    """One `run.map` over the cluster."""

    def __init__(self, spec: RunSpec, tasks: Sequence[ShardTask], standard: Standard, policy: ShardPolicy) -> None:
        self.spec = spec
        self.policy = policy
        self.schedule = ShardSchedule(tasks, policy)
        # Once for all shards; without the secrets, as Ray's object store may spill to disk.
        self.common = ray.put((replace(spec, secrets=SecretValues()), standard))
        self.running: dict[Any, _Copy] = {}
        self.results: dict[Worker, int] = {}
        self.grown: set[Worker] = set()
        self._least = 2 if is_fixed() else ELASTIC_BACKLOG
        self._width = self._processors = 0
        self._share = float("inf")
        self._resized = float("-inf")
        for memory_gb in {task.memory_gb for task in tasks}:
            lacking = missing_resources(demand_of(1, memory_gb))
            if lacking:
                raise StepError(f"a shard of {spec.display} {lacking}")

    def outcomes(self) -> Iterator[tuple[int, ShardOutcome]]:
        """Run the shards, yielding (index, outcome) as they finish."""
        try:
            while self.schedule.unfinished:
                self._fill()
                pause = self.schedule.wait(time.monotonic(), TICK_SECONDS)
                if not self.running:
                    time.sleep(pause)
                    continue
                for stream in ray.wait(list(self.running), num_returns=1, timeout=pause)[0]:
                    yield from self._take(stream)
        finally:
            for stream in self.running:
                _cancel(stream)

    def _fill(self) -> None:
        """Start what may start."""
        now = time.monotonic()
        if now - self._resized > RESIZE_SECONDS:
            self._resized = now
            self._resize()
        while (last := self._ends_its_worker()) is not None:
            task = self.schedule.next(now)
            if task is None:
                break
            self._start(task, last)
        lagging = self.schedule.straggler(now)
        if lagging is not None:
            logger.info("shard %d of %s lags behind: it is started a second time", lagging.index, self.spec.display)
            self._start(lagging, False, scheduling_strategy="SPREAD")

    def _ends_its_worker(self) -> bool | None:
        """Whether the next shard ends its worker; None when none is to be started now.

        Ray leaves a worker with the tasks of one function for as long as any wait. So while workers are to be
        replaced, no more of the others are sent than the remaining workers can take.
        """
        if len(self.running) >= self._width:
            return None
        lasts = sum(copy.last for copy in self.running.values())
        if lasts < len(self.grown):
            return True
        if self.grown and len(self.running) - lasts >= self._processors - len(self.grown):
            return None
        return False

    def _resize(self) -> None:
        """Follow a cluster that grows or shrinks."""
        nodes = [node for node in node_resources() if node.get("CPU")]
        self._processors = int(sum(node["CPU"] for node in nodes))
        self._width = max(self._least, 2 * self._processors)
        self._share = min((node.get("memory", 0.0) / node["CPU"] for node in nodes), default=float("inf"))

    def _start(self, task: ShardTask, last: bool, **options: Any) -> None:
        options |= options_of(demand_of(1, task.memory_gb), f"{self.spec.display} shard {task.index}")
        function = _last_shard if last else _shard
        self.running[function.options(**options).remote(self.common, self.spec.secrets, task)] = _Copy(task, last)

    def _take(self, stream: Any) -> Iterator[tuple[int, ShardOutcome]]:
        """Take in what a shard says next."""
        copy = self.running[stream]
        index = copy.task.index
        what = f"{self.spec.display} shard {index}"
        log, held = "", 0
        result: ShardOutcome | Failure
        try:
            kind, value = ray.get(next(stream))
            if kind == "began":
                copy.worker, copy.began = value, time.monotonic()
                self.schedule.began(index, copy.began)
                return
            result, log, held = value
        except StopIteration:
            result = Failure(FailureClass.preempted, "WorkerLost", f"{what} ended without an outcome", "", "")
        except BaseException as error:
            result = ray_failure(error, what)
        del self.running[stream]
        if log:
            logger.info("log of %s:\n%s", what, log)
        self._weigh(copy, held)
        if isinstance(result, ShardOutcome):
            self._end_others(index)
            self.schedule.finished(index, time.monotonic() - copy.began)
            yield index, result
        elif not self.schedule.failed(index, result.kind, time.monotonic()):
            raise StepFailed(result)
        else:
            logger.warning("%s: %s; it is tried again", what, result.message)

    def _end_others(self, index: int) -> None:
        """Cancel the other copy of a shard that has its outcome."""
        for stream in [stream for stream, copy in self.running.items() if copy.task.index == index]:
            del self.running[stream]
            _cancel(stream)

    def _weigh(self, copy: _Copy, held: int) -> None:
        """Note how much memory a worker holds. One that is over the limit from its first shard on would not be better
        for being replaced."""
        if copy.worker is None:
            return
        self.results[copy.worker] = self.results.get(copy.worker, 0) + 1
        if copy.last or not held:
            self.grown.discard(copy.worker)
        elif held > self._limit(copy.task) and self.results[copy.worker] > 1:
            self.grown.add(copy.worker)

    def _limit(self, task: ShardTask) -> float:
        """Bytes that a worker may hold after a shard."""
        declared = task.memory_gb if task.memory_gb is not None else self.policy.worker_memory_gb
        return declared * GB if declared is not None else self._share


def _cancel(stream: Any) -> None:
    with contextlib.suppress(Exception):
        ray.cancel(stream, force=True)
