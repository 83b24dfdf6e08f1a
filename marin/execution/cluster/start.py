"""Ray for a run: embedded in this process, or a cluster that is joined by its address."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import ray
import ray.exceptions

from marin.execution.cluster.address import split_address, unreachable
from marin.execution.cluster.resources import FIXED
from marin.execution.cluster.shipping import Shipment, pack
from marin.execution.cluster.token import refused
from marin.execution.failures import StepError

EMBEDDED_OBJECT_STORE_BYTES = 128 << 20
IDLE_WORKERS = 6
"""Worker processes that embedded Ray keeps for the next task: a step and its shards come in short bursts."""
START_ATTEMPTS = 5
"""Ray gives its own processes half a minute to come up, which a machine busy with other work can exceed."""
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": True}


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


@contextlib.contextmanager
def joined(address: str, stays_here: Sequence[Path] = ()) -> Iterator[Shipment | None]:
    """The cluster at an address, joined as by `join` for the time of the block; one that this process is in already
    stays joined.
    """
    if ray.is_initialized():
        yield None
        return
    with kept_signal_handlers():
        shipment = join(address, stays_here)
    try:
        yield shipment
    finally:
        ray.shutdown()


def start_embedded(cpus: float) -> None:
    """Start Ray on this machine, bound to loopback, with at least `cpus` processors to hand out."""
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
                **QUIET,
            )
            return
        except Exception as error:  # Ray gives a node that is slow to come up no class of its own
            ray.shutdown()
            if "timed out" not in str(error) or attempt == START_ATTEMPTS:
                raise StepError(f"Ray does not start on this machine: {error}") from error


def join(address: str, stays_here: Sequence[Path] = ()) -> Shipment | None:
    """Join the cluster at an address, and send it the code that this process runs from, without `stays_here`.

    Raises:
        StepError: nothing answers there, it does not let this machine in, or it is another version of Ray or Python.
    """
    if address.startswith("ray://"):
        host, _ = split_address(address)
        raise StepError(
            f"{address} is an address of Ray's client, which cannot stream a step's progress: run on a machine "
            f"inside the cluster's network and give the head's own address, such as {host}:6379"
        )
    silence = unreachable(address)
    if silence is not None:
        raise StepError(f"{silence}; start the cluster, or mend --cluster or RAY_ADDRESS")
    if address not in ("auto", "local"):
        refusal = refused(*split_address(address), os.environ, Path.home())
        if refusal is not None:
            raise StepError(refusal)
    with tempfile.TemporaryDirectory(prefix="marin-code-") as folder:
        shipment = pack(Path(folder) / "code.zip", sys.modules.get("__main__"), stays_here)
        try:
            ray.init(address=address, runtime_env=shipment.runtime_env() if shipment is not None else None, **QUIET)
        except ray.exceptions.AuthenticationError as error:
            raise StepError(f"the cluster at {address} asks for a token: {first_line(error)}") from error
        except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
            told = " ".join(str(error).split())
            raise StepError(
                f"the Ray cluster at {address!r} cannot be joined ({told}); mend --cluster or RAY_ADDRESS"
            ) from error
    return shipment


def first_line(error: BaseException) -> str:
    """What an error says first."""
    return str(error).strip().partition("\n")[0]
