"""Processes that end in ways of their own, forked from one that has imported torch: seconds saved for each."""

from __future__ import annotations

import functools
import multiprocessing
import socket
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from typing import Any

from tests.training.rank_pool import VARIABLES

PRELOADED = ["marin.training.loop", "marin.training.watch.build", "tests.training.toy"]


@functools.cache
def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def started(function: Callable[..., Any], *arguments: Any) -> BaseProcess:
    """`function(*arguments)` in a process of its own."""
    process = _context().Process(target=function, args=arguments)
    process.start()
    return process


def rank_variables(world: int) -> list[dict[str, str]]:
    """The environment of each rank of a gang on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return [
        dict(zip(VARIABLES, map(str, (rank, world, rank, world, "127.0.0.1", port)), strict=True))
        for rank in range(world)
    ]
