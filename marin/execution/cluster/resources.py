"""What work takes of a node, in Ray's terms, and whether the cluster has a node that can give it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray

GB = 2**30
FIXED = "marin_fixed"
"""A resource that a cluster has whose nodes are all there: what no node can give is then an error at once."""


def demand_of(cpus: float, memory_gb: float | None, gpus: float = 0.0) -> dict[str, float]:
    """What a task takes of a node."""
    demand = {"CPU": cpus}
    if gpus:
        demand["GPU"] = gpus
    if memory_gb is not None:
        demand["memory"] = float(int(memory_gb * GB))
    return demand


def options_of(demand: Mapping[str, float], name: str) -> dict[str, Any]:
    """The options of a Ray task that takes so much."""
    memory = {"memory": int(demand["memory"])} if "memory" in demand else {}
    return {"num_cpus": demand["CPU"], "num_gpus": demand.get("GPU", 0), "name": name, **memory}


def demand_text(demand: Mapping[str, float]) -> str:
    """A demand for people."""
    return ", ".join(amount_text(name, amount) for name, amount in demand.items() if amount)


def amount_text(name: str, amount: float) -> str:
    """A quantity of a resource."""
    return f"{amount / GB:.4g} GB of memory" if name == "memory" else f"{amount:g} {name}"


def is_fixed() -> bool:
    """Whether all nodes of the cluster are there, so that none will come."""
    return bool(ray.cluster_resources().get(FIXED))


def nodes_with(demand: Mapping[str, float]) -> int:
    """How many nodes could hold a demand if they were idle."""
    return sum(all(node.get(name, 0.0) >= amount for name, amount in demand.items()) for node in node_resources())


def node_resources() -> list[dict[str, float]]:
    """What each living node has in all."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def missing_resources(demand: Mapping[str, float]) -> str:
    """Why no node of the cluster can ever meet a demand, or an empty text.

    A cluster that does not say that its nodes are all there may grow by the node that is missing: then the demand
    waits for it, as Ray's autoscaler expects.
    """
    if not is_fixed() or nodes_with(demand):
        return ""
    nodes = node_resources()
    best = {name: max((node.get(name, 0.0) for node in nodes), default=0.0) for name in demand}
    lacking = ", ".join(
        f"{amount_text(name, amount)} (the largest node has {amount_text(name, best[name])})"
        for name, amount in demand.items()
        if amount
    )
    return f"asks for {lacking} on one of {len(nodes)} nodes; no node can give that: change its fleet, or add a node"
