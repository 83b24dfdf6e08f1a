"""A function called on every worker of a fleet outside of any run, such as a check before one."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import ray

from marin.execution.cluster.failures import ray_failure
from marin.execution.cluster.gang_life import GangEnded, Ranks
from marin.execution.cluster.gang_nodes import NodeFaults
from marin.execution.cluster.gang_places import Places
from marin.execution.cluster.nodes import Standard
from marin.execution.failures import StepError
from marin.execution.fleet import Fleet
from marin.execution.running.claims import Claim
from marin.execution.running.inline import ignore_progress
from marin.execution.running.tasks import RunSpec
from marin.execution.running.worker import Failure
from marin.execution.secrets import SecretValues
from marin.storage import Store


def call_on_fleet(
    fleet: Fleet,
    store: Store,
    credentials: SecretValues,
    function: Callable[[Any], Any],
    payload: Any,
    *,
    name: str,
    seconds: float,
) -> list[Any]:
    """`function(payload)` on each worker, as a rank of one torchrun-like world; a `Failure` where it raised.

    Ray is connected already. The places are given back, and all processes ended, on every way out.

    Raises:
        StepError: there are no places, a worker does not come up or reach rank 0, or does not answer in time.
    """
    spec = RunSpec(store, name, name, name, name, 1, Claim(name, uuid.uuid4().hex, 1), fleet, "", True)
    prefix = f"{name}/{uuid.uuid4().hex[:12]}"
    places = Places(f"{prefix}/", name, fleet, (fleet.workers,), NodeFaults(1), ignore_progress)
    held = places.take(within=seconds)
    try:
        ranks = Ranks(spec, held, prefix, Standard({}))
        try:
            ranks.prepare()
            calls = [
                actor.call.remote(ranks.environment(rank), credentials, function, payload)
                for rank, actor in enumerate(ranks.actors)
            ]
            _, silent = ray.wait(calls, num_returns=len(calls), timeout=seconds)
            if silent:
                missing = [rank for rank, call in enumerate(calls) if call in silent]
                hosts = ", ".join(f"rank {rank} on {ranks.places[rank].host}" for rank in missing)
                raise StepError(f"{name}: no answer in {seconds:g} s from {hosts}")
            return [_answer(call, f"rank {rank} of {name}") for rank, call in enumerate(calls)]
        finally:
            ranks.kill()
    except GangEnded as ended:
        raise StepError(f"{name}: {ended.failure.message}") from None
    finally:
        held.give_back()


def _answer(call: Any, what: str) -> Any | Failure:
    try:
        return ray.get(call)
    except BaseException as error:
        return ray_failure(error, what)
