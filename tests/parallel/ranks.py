"""Runs one function on several gloo ranks and brings every rank's answer back."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing


def on_ranks(count: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """`function(*arguments)` on `count` processes of one process group; answers in rank order."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    multiprocessing.spawn(_enter, args=(count, port, answers, function, arguments), nprocs=count)
    by_rank = dict(answers.get() for _ in range(count))
    return [by_rank[rank] for rank in range(count)]


def _enter(rank: int, count: int, port: int, answers: Any, function: Callable[..., Any], arguments: Any) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=count)
    try:
        answers.put((rank, function(*arguments)))
    finally:
        dist.destroy_process_group()
