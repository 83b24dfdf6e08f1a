"""Where a step runs: never part of its identity."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Fleet:
    """The machines of a gang of workers (torch.distributed ranks), as one request.

    `workers` is the world size. Workers are packed `workers_per_node` to a node, so that ranks of one node are
    neighbours. The cluster definitions in infra/ are rendered from this.
    """

    workers: int = 1
    cpus_per_worker: float = 1.0
    gpus_per_worker: float = 0.0
    workers_per_node: int = 1
    memory_gb_per_node: float = 8.0
    accelerator: str | None = None
    spot: bool = False

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ValueError(f"fleet.workers must be at least 1, got {self.workers}")
        if self.workers_per_node < 1 or self.workers % self.workers_per_node:
            raise ValueError(
                f"fleet.workers_per_node must divide fleet.workers: {self.workers_per_node} does not divide "
                f"{self.workers}; use one of {[n for n in range(1, self.workers + 1) if self.workers % n == 0]}"
            )
        if self.cpus_per_worker <= 0 or self.gpus_per_worker < 0 or self.memory_gb_per_node <= 0:
            raise ValueError(
                "fleet.cpus_per_worker and fleet.memory_gb_per_node must be positive and fleet.gpus_per_worker not "
                f"negative, got {self.cpus_per_worker}, {self.memory_gb_per_node}, {self.gpus_per_worker}"
            )

    @property
    def single(self) -> Fleet:
        """One worker of this fleet, for a step that is no gang."""
        return replace(self, workers=1, workers_per_node=1)

    @property
    def nodes(self) -> int:
        """Machines needed."""
        return self.workers // self.workers_per_node
