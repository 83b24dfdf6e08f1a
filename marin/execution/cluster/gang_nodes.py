"""The nodes of a run's gangs: which ended gangs, which are leaving, and which are therefore avoided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import ray

from marin.execution.failures import FailureClass
from marin.execution.running.worker import Failure

HARDWARE = ("uncorrectable ecc error", "gpu has fallen off the bus", "no cuda-capable device is detected")
"""What CUDA says of a broken card, in lower case: the node's fault, not the code's."""


def is_hardware(failure: Failure) -> bool:
    """Whether an error of a rank's code is that of a broken card."""
    text = failure.message.lower()
    return failure.kind is FailureClass.error and any(phrase in text for phrase in HARDWARE)


def node_names() -> dict[str, str]:
    """Living nodes by Ray's name: their host's name, or where several nodes share a host, Ray's own.

    A host that starts again is another node for Ray, and still the same machine.
    """
    alive = [node for node in ray.nodes() if node["Alive"]]
    hosts = Counter(node["NodeManagerHostname"] for node in alive)
    return {
        node["NodeID"]: node["NodeManagerHostname"] if hosts[node["NodeManagerHostname"]] == 1 else node["NodeID"][:12]
        for node in alive
    }


@dataclass
class NodeFaults:
    """What a run holds against nodes. Names are those of `node_names`."""

    limit: int
    names: dict[str, str] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    leaving: dict[str, str] = field(default_factory=dict)

    def see(self, nodes: Mapping[str, str]) -> None:
        """Remember how living nodes are called, for when they are dead."""
        self.names.update(nodes)

    def name(self, node: str) -> str:
        """What a node is called."""
        return self.names.get(node, node[:12])

    def blame(self, node: str) -> bool:
        """A gang ended by this node's fault; whether it is avoided from now on."""
        self.faults[self.name(node)] += 1
        return self.faults[self.name(node)] == self.limit

    def leave(self, node: str, reason: str) -> None:
        """This node goes away soon; what is started now would not live long there."""
        self.leaving[node] = reason

    def avoided(self, nodes: Mapping[str, str]) -> dict[str, str]:
        """Of these nodes the avoided ones, by Ray's name, with the reason."""
        reasons = {}
        for node, name in nodes.items():
            if node in self.leaving:
                reasons[node] = self.leaving[node]
            elif self.faults[name] >= self.limit:
                reasons[node] = f"it ended {self.faults[name]} gangs"
        return reasons

    def readmit(self) -> None:
        """Nothing else is left: forget all of it."""
        self.faults.clear()
        self.leaving.clear()
