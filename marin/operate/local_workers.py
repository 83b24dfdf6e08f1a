"""A function called in several processes of this machine at once, as ranks of one torchrun-like world."""

from __future__ import annotations

import multiprocessing
import os
import queue
import time
from collections.abc import Callable
from typing import Any

from marin.execution import StepError
from marin.execution.running.inline import free_port, rank_environment
from marin.execution.running.worker import Failure, failure_of


def call_on_this_machine(
    workers: int, function: Callable[[Any], Any], payload: Any, *, name: str, seconds: float
) -> list[Any]:
    """`function(payload)` in each process; a `Failure` where it raised. All processes end on every way out.

    Raises:
        StepError: a process gave no answer in time.
    """
    context = multiprocessing.get_context("spawn")
    answers: multiprocessing.Queue[tuple[int, Any]] = context.Queue()
    port = free_port("127.0.0.1")
    processes = []
    for rank in range(workers):
        environment = rank_environment(rank, workers, rank, workers, "127.0.0.1", port) | {"GLOO_SOCKET_IFNAME": "lo"}
        arguments = (environment, function, payload, answers)
        processes.append(context.Process(target=_answer, args=arguments, daemon=True))
        processes[-1].start()
    found: dict[int, Any] = {}
    deadline = time.monotonic() + seconds
    try:
        while len(found) < workers:
            try:
                rank, answer = answers.get(timeout=0.2)
            except queue.Empty:
                dead = [r for r, process in enumerate(processes) if process.exitcode is not None and r not in found]
                if not dead and time.monotonic() < deadline:
                    continue
                missing = ", ".join(f"rank {r}" for r in range(workers) if r not in found)
                how = "ended without an answer" if dead else f"did not answer in {seconds:g} s"
                raise StepError(f"{name}: {missing} {how}") from None
            found[rank] = answer
    finally:
        for process in processes:
            process.kill()
            process.join()
    return [found[rank] for rank in range(workers)]


def _answer(
    environment: dict[str, str],
    function: Callable[[Any], Any],
    payload: Any,
    answers: multiprocessing.Queue[tuple[int, Any | Failure]],
) -> None:
    os.environ.update(environment)
    try:
        answer = function(payload)
    except BaseException as error:
        answer = failure_of(error)
    answers.put((int(environment["RANK"]), answer))
    answers.close()
    answers.join_thread()
