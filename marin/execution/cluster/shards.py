"""The shards of a step as Ray tasks, started from the step's own task.

A shard says when it begins, and at its end what came out and how much memory its worker holds. When a worker grows
beyond its limit, shards are sent to a function that ends its worker after as many calls as fit below the limit. Shards
that lag far behind are started a second time; whichever copy leaves the finish mark first, both have its outcome.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import psutil
import ray

from marin.execution.cluster.failures import ray_failure
from marin.execution.cluster.nodes import Standard, this_node
from marin.execution.cluster.resources import GB, demand_of, is_fixed, missing_resources, node_resources, options_of
from marin.execution.cluster.shard_schedule import ShardPolicy, ShardSchedule
from marin.execution.cluster.streams import Message, messages_of
from marin.execution.cluster.worker_memory import WorkerMemory
from marin.execution.failures import FailureClass, StepError
from marin.execution.running.captured_log import captured_log
from marin.execution.running.context import run_shard
from marin.execution.running.inline import ignore_progress
from marin.execution.running.scratch import scratch_folder
from marin.execution.running.tasks import RunSpec, ShardOutcome, ShardTask
from marin.execution.running.worker import Failure, StepFailed, failure_of
from marin.execution.secrets import SecretValues

ELASTIC_BACKLOG = 64
"""Shards that wait in Ray on a cluster that may grow, so that it sees what is wanted."""
TICK_SECONDS = 1.0
RESIZE_SECONDS = 5.0

logger = logging.getLogger(__name__)


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


@functools.cache
def _shard(calls: int) -> Any:
    """The function on Ray that ends its worker after so many calls; 0 for never."""
    return ray.remote(max_retries=0, max_calls=calls)(_shard_messages)


@dataclass
class _Copy:
    """A shard's task in Ray."""

    task: ShardTask
    calls: int
    worker: tuple[str, int] | None = None
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
        self.memory = WorkerMemory()
        self._least = 2 if is_fixed() else ELASTIC_BACKLOG
        self._width = 0
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
                room = len(self.running) < self._width
                pause = self.schedule.wait(time.monotonic(), TICK_SECONDS) if room else TICK_SECONDS
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
        while len(self.running) < self._width:
            task = self.schedule.next(now)
            if task is None:
                break
            self._start(task)
        lagging = self.schedule.straggler(now)
        if lagging is not None:
            logger.info("shard %d of %s lags behind: it is started a second time", lagging.index, self.spec.display)
            self._start(lagging, scheduling_strategy="SPREAD")

    def _resize(self) -> None:
        """Follow a cluster that grows or shrinks."""
        nodes = [node for node in node_resources() if node.get("CPU")]
        self._width = max(self._least, 2 * int(sum(node["CPU"] for node in nodes)))
        self._share = min((node.get("memory", 0.0) / node["CPU"] for node in nodes), default=float("inf"))

    def _start(self, task: ShardTask, **options: Any) -> None:
        options |= options_of(demand_of(1, task.memory_gb), f"{self.spec.display} shard {task.index}")
        calls = self.memory.calls_of_next()
        stream = _shard(calls).options(**options).remote(self.common, self.spec.secrets, task)
        self.running[stream] = _Copy(task, calls)

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
        if copy.worker is not None and held:
            self.memory.weigh(copy.worker, held, self._limit(copy.task), copy.calls)
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

    def _limit(self, task: ShardTask) -> float:
        """Bytes that a worker may hold after a shard."""
        declared = task.memory_gb if task.memory_gb is not None else self.policy.worker_memory_gb
        return declared * GB if declared is not None else self._share


def _cancel(stream: Any) -> None:
    with contextlib.suppress(Exception):
        ray.cancel(stream, force=True)
