"""Processes that stand by as ranks, so that many small gangs cost one import of torch."""

from __future__ import annotations

import atexit
import functools
import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class RankFailed(Exception):
    """Ranks raised; `errors` has the exception's class name and traceback by rank."""

    def __init__(self, errors: dict[int, tuple[str, str]]) -> None:
        super().__init__("\n".join(f"rank {rank}: {trace}" for rank, (_, trace) in sorted(errors.items())))
        self.errors = errors


class RankPool:
    """`size` spawned processes; `run` makes one gang of them at a time and waits `patience` seconds for each answer."""

    def __init__(self, size: int, patience: float = 120.0) -> None:
        self.patience = patience
        context = multiprocessing.get_context("spawn")
        self.connections: list[Connection] = []
        self.processes = []
        for _ in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs,), daemon=True)
            process.start()
            self.connections.append(ours)
            self.processes.append(process)

    def run(self, function: Callable[[Any], Any], payload: Any, world: int) -> list[Any]:
        """`function(payload)` in `world` ranks at once; their results in order of rank, or RankFailed."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        for rank, connection in enumerate(self.connections[:world]):
            values = (rank, world, rank, world, "127.0.0.1", port)
            connection.send((dict(zip(VARIABLES, map(str, values), strict=True)), function, payload))
        results: dict[int, Any] = {}
        errors: dict[int, tuple[str, str]] = {}
        waiting = dict(zip(self.connections[:world], range(world), strict=True))
        while waiting:
            ready = wait(list(waiting), timeout=self.patience)
            if not ready:
                raise TimeoutError(f"ranks {sorted(waiting.values())} did not answer")
            for connection in ready:
                rank = waiting.pop(connection)  # type: ignore[arg-type]
                ok, value = connection.recv()  # type: ignore[union-attr]
                (results if ok else errors)[rank] = value
        if errors:
            raise RankFailed(errors)
        return [results[rank] for rank in range(world)]

    def close(self) -> None:
        """Ends the processes."""
        for process in self.processes:
            process.kill()
            process.join()


def _serve(connection: Connection) -> None:
    while True:
        try:
            variables, function, payload = connection.recv()
        except EOFError:
            return
        os.environ.update(variables)
        try:
            connection.send((True, function(payload)))
        except BaseException as error:
            connection.send((False, (type(error).__name__, "".join(traceback.format_exception(error)))))


@functools.cache
def shared_pool() -> RankPool:
    """The pool of two that all tests of a session share."""
    pool = RankPool(2)
    atexit.register(pool.close)
    return pool
