"""The back end on Ray: a step is a task, its shards are tasks of that task, its gang is a group of actors.

Ray holds no truth: when the driver or the cluster dies, running the script again goes on from the store.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import ray
import ray.exceptions

from marin.execution.address import unreachable
from marin.execution.context import RankOutcome, Report, RunSpec, ShardOutcome, ShardTask, run_shard
from marin.execution.failures import RETRY_BUDGET, FailureClass, StepError
from marin.execution.inline import ignore_progress
from marin.execution.worker import (
    Failure,
    Outcome,
    StepFailed,
    StepTask,
    captured_log,
    execute,
    failure_of,
    scratch_folder,
)

GB = 2**30
EMBEDDED_OBJECT_STORE_BYTES = 128 << 20
FIXED = "marin_fixed"
"""A resource that a cluster has whose nodes are all there: what no node can give is then an error at once."""
ELASTIC_BACKLOG = 64
"""Shards that wait in Ray on a cluster that may grow, so that it sees what is wanted."""
IDLE_WORKERS = 6
"""Worker processes that embedded Ray keeps for the next task: a step and its shards come in short bursts."""
SHARD_PAUSE_SECONDS = 1.0
START_ATTEMPTS = 5
"""Ray gives its own processes half a minute to come up, which a machine busy with other work can exceed."""

logger = logging.getLogger(__name__)

Message = tuple[str, Any]


def ray_failure(error: BaseException, what: str) -> Failure:
    """A Ray exception as a failure, by class: what was lost is tried again, what the code did is not."""
    memory = (ray.exceptions.OutOfMemoryError, ray.exceptions.ObjectStoreFullError)
    lost = (
        ray.exceptions.WorkerCrashedError,
        ray.exceptions.ActorDiedError,
        ray.exceptions.ActorUnavailableError,
        ray.exceptions.NodeDiedError,
        ray.exceptions.OwnerDiedError,
        ray.exceptions.ObjectLostError,
        ray.exceptions.LocalRayletDiedError,
        ray.exceptions.RaySystemError,
    )
    if isinstance(error, ray.exceptions.RayTaskError) and isinstance(error, ray.exceptions.RaySystemError):
        last = str(error).strip().splitlines()[-1]
        message = f"the worker of {what} cannot read its task, as it lacks what this process has: {last}"
        return Failure(FailureClass.error, "TaskUnreadable", message, str(error), "")
    if isinstance(error, ray.exceptions.TaskCancelledError):
        return Failure(FailureClass.cancelled, "Cancelled", f"{what} was cancelled", "", "")
    if isinstance(error, memory):
        return Failure(FailureClass.memory, "OutOfMemory", f"{what} was killed for memory: {error}", str(error), "")
    if isinstance(error, lost):
        first = str(error).strip().splitlines()[0] if str(error).strip() else ""
        return Failure(FailureClass.preempted, "WorkerLost", f"the worker of {what} is gone: {first}", str(error), "")
    return failure_of(error)


def messages_of(work: Callable[[Callable[[Message], None]], None]) -> Iterator[Message]:
    """Run `work(send)` in a thread and yield what it sends, until it ends. How a Ray task streams its progress."""
    messages: queue.Queue[Message | None] = queue.Queue()

    def body() -> None:
        try:
            work(messages.put)
        finally:
            messages.put(None)

    thread = threading.Thread(target=body, name="marin-body", daemon=True)
    thread.start()
    while (message := messages.get()) is not None:
        yield message


def _step_messages(task: StepTask) -> Iterator[Message]:
    """A step's task: its progress, then its outcome."""

    def work(send: Callable[[Message], None]) -> None:
        send(("done", execute(task, lambda progress: send(("progress", progress)), RayFanout())))

    yield from messages_of(work)


def _shard_result(spec: RunSpec, task: ShardTask) -> tuple[ShardOutcome | Failure, str]:
    """A shard's task: what became of it, and its log."""
    result: ShardOutcome | Failure
    with captured_log() as log, scratch_folder() as scratch:
        try:
            result = run_shard(spec, task, scratch, ignore_progress)
        except BaseException as error:
            result = failure_of(error)
        return result, log.getvalue()


_step = ray.remote(max_retries=0)(_step_messages)
_shard = ray.remote(max_retries=0)(_shard_result)


class RayBackend:
    """Steps as Ray tasks, on an embedded Ray of this machine or on a cluster that runs already."""

    def __init__(self, address: str | None = None, *, cpus: float = 2) -> None:
        """`address` joins a cluster; without it Ray is started here with at least `cpus` processors to hand out.

        A process that uses Ray already keeps the Ray it has, and keeps it afterwards.
        """
        self._running: dict[int, Any] = {}
        self._lock = threading.Lock()
        self._joined = address is None and ray.is_initialized()
        if not self._joined:
            with kept_signal_handlers():
                start_ray(address, cpus)

    def run(self, task: StepTask, report: Report) -> Outcome:
        fans_out = task.spec.fans_out
        gpus = 0.0 if fans_out else task.spec.fleet.gpus_per_worker
        demand = demand_of(0.0 if fans_out else task.cpus, task.memory_gb, gpus)
        lacking = missing_resources(demand)
        if lacking:
            return Outcome(None, (), (), failure_of(StepError(f"{task.spec.display} {lacking}")), "")
        stream = _step.options(**options_of(demand, task.spec.display)).remote(task)
        with self._lock:
            self._running[id(stream)] = stream
        try:
            for reference in stream:
                kind, value = ray.get(reference)
                if kind == "done":
                    outcome: Outcome = value
                    return outcome
                report(value)
            raise StepError(f"{task.spec.display} ended without an outcome")
        except BaseException as error:
            return Outcome(None, (), (), ray_failure(error, task.spec.display), "")
        finally:
            with self._lock:
                self._running.pop(id(stream), None)

    def cancel(self) -> None:
        with self._lock:
            streams = list(self._running.values())
        for stream in streams:
            with contextlib.suppress(Exception):
                ray.cancel(stream, force=True, recursive=True)

    def close(self) -> None:
        if not self._joined:
            ray.shutdown()


@contextlib.contextmanager
def kept_signal_handlers() -> Iterator[None]:
    """Put back this process's signal handlers: Ray's own would end the driver with its claims still held."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in kept.items():
                if handler is not None:
                    signal.signal(number, handler)


def start_ray(address: str | None, cpus: float) -> None:
    """Join a cluster, or start Ray on this machine, bound to loopback."""
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": True}
    if address is not None:
        silence = unreachable(address)
        if silence is not None:
            raise StepError(f"{silence}; start the cluster, or mend --cluster or RAY_ADDRESS")
        try:
            ray.init(address=address, **quiet)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise StepError(
                f"no Ray cluster answers at {address!r} ({error}); mend --cluster or RAY_ADDRESS"
            ) from error
        return
    for attempt in range(1, START_ATTEMPTS + 1):
        try:
            ray.init(
                address="local",
                num_cpus=max(math.ceil(cpus), os.cpu_count() or 1),
                include_dashboard=False,
                object_store_memory=EMBEDDED_OBJECT_STORE_BYTES,
                _node_ip_address="127.0.0.1",
                resources={FIXED: 1},
                _system_config={"num_workers_soft_limit": IDLE_WORKERS},
                **quiet,
            )
            return
        except Exception as error:  # Ray gives a node that is slow to come up no class of its own
            ray.shutdown()
            if "timed out" not in str(error) or attempt == START_ATTEMPTS:
                raise StepError(f"Ray does not start on this machine: {error}") from error


def demand_of(cpus: float, memory_gb: float | None, gpus: float = 0.0) -> dict[str, float]:
    """What a task takes of a node, in Ray's terms."""
    demand = {"CPU": cpus}
    if gpus:
        demand["GPU"] = gpus
    if memory_gb is not None:
        demand["memory"] = float(int(memory_gb * GB))
    return demand


def options_of(demand: dict[str, float], name: str) -> dict[str, Any]:
    """The options of a Ray task that takes so much."""
    memory = {"memory": int(demand["memory"])} if "memory" in demand else {}
    return {"num_cpus": demand["CPU"], "num_gpus": demand.get("GPU", 0), "name": name, **memory}


def amount_text(name: str, amount: float) -> str:
    """A quantity of a resource."""
    return f"{amount / GB:.4g} GB of memory" if name == "memory" else f"{amount:g} {name}"


def missing_resources(demand: dict[str, float]) -> str:
    """Why no node of the cluster can ever meet a demand, or an empty text.

    A cluster that does not say that its nodes are all there may grow by the node that is missing: then the demand
    waits for it, as Ray's autoscaler expects.
    """
    if not ray.cluster_resources().get(FIXED):
        return ""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if any(all(node.get(name, 0.0) >= amount for name, amount in demand.items()) for node in nodes):
        return ""
    best = {name: max((node.get(name, 0.0) for node in nodes), default=0.0) for name in demand}
    lacking = ", ".join(
        f"{amount_text(name, amount)} (the largest node has {amount_text(name, best[name])})"
        for name, amount in demand.items()
        if amount
    )
    return f"asks for {lacking} on one of {len(nodes)} nodes; no node can give that: change its fleet, or add a node"


class RayFanout:
    """Shards and gangs of a step, started from the step's own task."""

    def map(self, spec: RunSpec, tasks: Sequence[ShardTask]) -> Iterator[tuple[int, ShardOutcome]]:
        for memory_gb in {task.memory_gb for task in tasks}:
            lacking = missing_resources(demand_of(1, memory_gb))
            if lacking:
                raise StepError(f"a shard of {spec.display} {lacking}")
        waiting = list(reversed(tasks))
        least = 2 if ray.cluster_resources().get(FIXED) else ELASTIC_BACKLOG
        tries: dict[tuple[int, FailureClass], int] = {}
        running: dict[Any, ShardTask] = {}
        try:
            while waiting or running:
                width = max(least, 2 * int(ray.cluster_resources().get("CPU", 1)))
                while waiting and len(running) < width:
                    task = waiting.pop()
                    running[self._start(spec, task)] = task
                ready, _ = ray.wait(list(running), num_returns=1)
                task = running.pop(ready[0])
                result = self._result(ready[0], f"{spec.display} shard {task.index}")
                if isinstance(result, ShardOutcome):
                    yield task.index, result
                    continue
                key = (task.index, result.kind)
                tries[key] = tries.get(key, 0) + 1
                if tries[key] > RETRY_BUDGET.get(result.kind, 0):
                    raise StepFailed(result)
                time.sleep(SHARD_PAUSE_SECONDS)
                waiting.append(task)
        finally:
            for reference in running:
                with contextlib.suppress(Exception):
                    ray.cancel(reference, force=True)

    def _start(self, spec: RunSpec, task: ShardTask) -> Any:
        options = options_of(demand_of(1, task.memory_gb), f"{spec.display} shard {task.index}")
        return _shard.options(**options).remote(spec, task)

    def _result(self, reference: Any, what: str) -> ShardOutcome | Failure:
        result: ShardOutcome | Failure
        try:
            result, log = ray.get(reference)
        except BaseException as error:
            return ray_failure(error, what)
        if log:
            logger.info("log of %s:\n%s", what, log)
        return result

    def gang(self, spec: RunSpec, entry: Callable[[Any], Any], payload: Any, report: Report) -> list[RankOutcome]:
        from marin.execution.gang import run_gang

        return run_gang(spec, entry, payload, report)
