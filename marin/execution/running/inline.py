"""The back end without Ray: steps, shards and ranks on this machine, for tests, small steps and debugging."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

from marin.execution.failures import Cancelled, FailureClass, LeaseLost
from marin.execution.running.claims import Claim
from marin.execution.running.context import run_rank, run_shard
from marin.execution.running.scratch import scratch_folder
from marin.execution.running.stopping import StopRequest
from marin.execution.running.tasks import RankOutcome, Report, RunSpec, ShardOutcome, ShardTask
from marin.execution.running.worker import Failure, Outcome, StepFailed, StepTask, execute, failure_of

BLAME_SECONDS = 1.0


class Backend(Protocol):
    """Where steps run."""

    def run(self, task: StepTask, report: Report) -> Outcome:
        """Run a step to its outcome; blocks. Never raises for what the step did."""

    def abort(self, claim: Claim) -> None:
        """End the one step that runs under this claim, whose lease is lost."""

    def stop(self, reason: str) -> None:
        """Ask the ranks of gangs to save and to end, and wait for that, within the bounds of their fleets."""

    def cancel(self) -> None:
        """End everything that runs."""

    def check(self) -> None:
        """Raise `ClusterLost` when the machines are gone for good. Asked many times a second."""

    def close(self) -> None:
        """Let go of the machines."""


class InlineBackend:
    """Steps in the calling thread, shards one after the other, ranks as processes of this machine."""

    def __init__(self) -> None:
        self._cancelled = threading.Event()
        self._stopping = threading.Event()
        self._aborted: set[Claim] = set()
        self._gangs: dict[Claim, float] = {}
        self._lock = threading.Lock()

    def run(self, task: StepTask, report: Report) -> Outcome:
        def checked(progress: dict[str, Any]) -> None:
            if self._cancelled.is_set():
                raise Cancelled("the run is ending")
            if task.spec.claim in self._aborted:
                raise LeaseLost(f"{task.spec.display} was taken over")
            report(progress)

        return execute(task, checked, self)

    def abort(self, claim: Claim) -> None:
        """A thread cannot be ended: the step ends at its next word of progress, and at its next write."""
        self._aborted.add(claim)

    def stop(self, reason: str) -> None:
        self._stopping.set()
        deadline = time.monotonic() + max(self._gangs.values(), default=0.0)
        while self._gangs and time.monotonic() < deadline:
            time.sleep(0.05)

    def cancel(self) -> None:
        self._cancelled.set()

    def check(self) -> None:
        """This machine is there."""

    def close(self) -> None:
        """Nothing is held."""

    def map(self, spec: RunSpec, tasks: Sequence[ShardTask]) -> Iterator[tuple[int, ShardOutcome]]:
        for task in tasks:
            if self._cancelled.is_set():
                raise Cancelled("the run is ending")
            with scratch_folder() as scratch:
                yield task.index, run_shard(spec, task, scratch, ignore_progress)

    def gang(
        self, spec: RunSpec, entry: Callable[[Any], Any], payload: Any, report: Report, sizes: Sequence[int] = ()
    ) -> list[RankOutcome]:
        workers = max(sizes, default=spec.fleet.workers)
        fitting = replace(spec, fleet=spec.fleet.of_size(workers))
        with self._lock:
            self._gangs[spec.claim] = spec.fleet.stop_seconds
        try:
            return run_processes(fitting, entry, payload, report, self._stopping)
        finally:
            with self._lock:
                del self._gangs[spec.claim]


def ignore_progress(progress: dict[str, Any]) -> None:
    """Progress that nobody looks at."""


def rank_environment(
    rank: int, world: int, local_rank: int, local_world: int, address: str, port: int
) -> dict[str, str]:
    """The environment variables that torch.distributed reads."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(local_world),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
    }


def free_port(address: str) -> int:
    """A port of this machine that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def _end_with_the_driver() -> None:
    """A rank whose driver was killed would train on for nobody."""
    driver = multiprocessing.parent_process()
    if driver is not None:
        driver.join()
        os._exit(1)


def _rank_process(
    environment: dict[str, str],
    spec: RunSpec,
    folder: str,
    entry: Callable[[Any], Any],
    payload: Any,
    messages: multiprocessing.Queue[tuple[int, str, Any]],
) -> None:
    os.environ.update(environment)
    rank = int(environment["RANK"])
    threading.Thread(target=_end_with_the_driver, name="marin-driver", daemon=True).start()

    stop = StopRequest()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: stop.set(f"the process received {signal.Signals(number).name}"))

    def report(progress: dict[str, Any]) -> None:
        messages.put((rank, "progress", progress))

    def give_up(error: BaseException) -> None:
        messages.put((rank, "failed", failure_of(error)))

    try:
        with scratch_folder() as scratch:
            messages.put((rank, "done", run_rank(spec, folder, entry, payload, scratch, report, stop, give_up)))
    except BaseException as error:
        messages.put((rank, "failed", failure_of(error)))


def _death(rank: int, code: int | None) -> Failure:
    """A killed rank is tried again; one that left by itself, without a word, would only leave again."""
    if code is not None and code >= 0:
        message = f"rank {rank} ended with exit code {code} and without a result; its last words are on standard error"
        return Failure(FailureClass.error, "RankEnded", message, "", "")
    return Failure(FailureClass.preempted, "RankDied", f"rank {rank} was killed (exit code {code})", "", "")


def _blame(first: Failure, processes: Sequence[BaseProcess]) -> Failure:
    """The killed rank behind a rank's error, if one shows up: a broken collective is the effect, not the cause."""
    deadline = time.monotonic() + BLAME_SECONDS
    while first.kind is FailureClass.error and not first.expected and time.monotonic() < deadline:
        for rank, process in enumerate(processes):
            if process.exitcode is not None and process.exitcode < 0:
                return _death(rank, process.exitcode)
        time.sleep(0.05)
    return first


def run_processes(
    spec: RunSpec, entry: Callable[[Any], Any], payload: Any, report: Report, stopping: threading.Event
) -> list[RankOutcome]:
    """One spawned process per worker of the fleet on this machine. A dead or failed rank ends all; no restart.

    Once `stopping` is set the ranks have the fleet's time to save and to end.
    """
    world = spec.fleet.workers
    context = multiprocessing.get_context("spawn")
    messages: multiprocessing.Queue[tuple[int, str, Any]] = context.Queue()
    port = free_port("127.0.0.1")
    processes = []
    for rank in range(world):
        environment = rank_environment(rank, world, rank, world, "127.0.0.1", port)
        folder = f"{spec.attempt_folder}/rank{rank}"
        arguments = (environment, spec, folder, entry, payload, messages)
        processes.append(context.Process(target=_rank_process, args=arguments, daemon=True))
    for process in processes:
        process.start()
    outcomes: dict[int, RankOutcome] = {}
    stopped: dict[int, Failure] = {}
    deadline: float | None = None
    try:
        while len(outcomes) + len(stopped) < world:
            if stopping.is_set() and deadline is None:
                deadline = time.monotonic() + spec.fleet.stop_seconds
                for process in processes:
                    process.terminate()  # which a rank takes for the request to save and to end
            if deadline is not None and time.monotonic() > deadline:
                raise StepFailed(_death(0, -signal.SIGKILL))
            ended = [rank for rank, process in enumerate(processes) if process.exitcode is not None]
            dead = [rank for rank in ended if rank not in outcomes and rank not in stopped]
            try:
                rank, kind, value = messages.get(timeout=0.2)
            except queue.Empty:
                if dead:  # and whatever they said has been read
                    raise StepFailed(_death(dead[0], processes[dead[0]].exitcode)) from None
                continue
            if kind == "done":
                outcomes[rank] = value
            elif kind == "failed" and deadline is not None and value.kind is FailureClass.preempted:
                stopped[rank] = value
            elif kind == "failed":
                raise StepFailed(_blame(value, processes))
            elif rank == 0:
                report(value)
        if stopped:
            raise StepFailed(next(iter(stopped.values())))
    finally:
        for process in processes:
            if len(outcomes) < world:
                process.kill()
            process.join(timeout=10)
    return [outcomes[rank] for rank in range(world)]
