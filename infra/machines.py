"""The machines that fleets are mapped to: what a cloud calls them and how much they hold.

Sizes are the published ones of the machine types (vCPUs, memory in GB). A fleet asks by accelerator; a fleet without
one runs on plain CPU machines.
"""

from __future__ import annotations

from dataclasses import dataclass

from marin.execution.fleet import Fleet

# Left to the operating system, the kubelet and Ray's own processes on every node.
RESERVED_CPUS = 2
RESERVED_MEMORY_GB = 4


@dataclass(frozen=True)
class Machine:
    """A machine type of Google Cloud; `accelerator` is Ray's name for its GPU, `cloud_accelerator` the cloud's."""

    type: str
    cpus: int
    memory_gb: int
    gpus: int = 0
    accelerator: str | None = None
    cloud_accelerator: str | None = None
    arm: bool = False


MACHINES = (
    Machine("n2-standard-8", 8, 32),
    Machine("n2-standard-16", 16, 64),
    Machine("n2-standard-32", 32, 128),
    Machine("n2-standard-64", 64, 256),
    Machine("a3-highgpu-8g", 208, 1872, 8, "H100", "nvidia-h100-80gb"),
    Machine("a3-ultragpu-8g", 224, 2952, 8, "H200", "nvidia-h200-141gb"),
    Machine("a4-highgpu-8g", 224, 3968, 8, "B200", "nvidia-b200"),
    Machine("a4x-highgpu-4g", 140, 884, 4, "GB200", "nvidia-gb200", arm=True),
)


@dataclass(frozen=True)
class NodeShape:
    """What one node of a fleet must offer."""

    cpus: int
    gpus: int
    memory_gb: int
    accelerator: str | None

    def __str__(self) -> str:
        gpus = f", {self.gpus} × {self.accelerator}" if self.gpus else ""
        return f"{self.cpus} CPUs, {self.memory_gb} GB{gpus}"


def node_shape(fleet: Fleet) -> NodeShape:
    """The node that a fleet packs its workers on; raises ValueError where its GPUs are not named or not whole."""
    cpus = -(-fleet.workers_per_node * fleet.cpus_per_worker // 1)
    gpus = fleet.workers_per_node * fleet.gpus_per_worker
    if gpus != int(gpus):
        raise ValueError(
            f"fleet.gpus_per_worker {fleet.gpus_per_worker} times fleet.workers_per_node {fleet.workers_per_node} "
            "must be a whole number of GPUs a node"
        )
    if bool(gpus) != (fleet.accelerator is not None):
        raise ValueError(
            f"fleet.accelerator {fleet.accelerator!r} and fleet.gpus_per_worker {fleet.gpus_per_worker} must be given "
            "together or not at all"
        )
    return NodeShape(int(cpus), int(gpus), int(-(-fleet.memory_gb_per_node // 1)), fleet.accelerator)


def machine_for(fleet: Fleet) -> Machine:
    """The smallest machine that holds one node of the fleet; raises ValueError naming the largest where none does."""
    shape = node_shape(fleet)
    kind = [machine for machine in MACHINES if machine.accelerator == shape.accelerator]
    if not kind:
        names = sorted({machine.accelerator for machine in MACHINES if machine.accelerator})
        raise ValueError(f"fleet.accelerator {shape.accelerator!r} is none of {', '.join(names)}; add it to MACHINES")
    for machine in sorted(kind, key=lambda machine: (machine.gpus, machine.cpus)):
        if (
            machine.cpus - RESERVED_CPUS >= shape.cpus
            and machine.memory_gb - RESERVED_MEMORY_GB >= shape.memory_gb
            and machine.gpus >= shape.gpus
        ):
            return machine
    largest = max(kind, key=lambda machine: (machine.gpus, machine.cpus))
    raise ValueError(
        f"a node of the fleet ({shape}) does not fit {largest.type}, the largest there is ({largest.cpus} CPUs, "
        f"{largest.memory_gb} GB, {largest.gpus} GPUs, less {RESERVED_CPUS} CPUs and {RESERVED_MEMORY_GB} GB "
        "reserved); lower fleet.workers_per_node, fleet.cpus_per_worker or fleet.memory_gb_per_node"
    )
