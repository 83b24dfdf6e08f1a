"""The clusters that are committed in rendered/: which fleets each consists of."""

from __future__ import annotations

from dataclasses import dataclass

from marin.execution.fleet import Fleet


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster: a gang that trains, and CPU workers that come and go with the data stages.

    `data` is the most that the data stages may use; both groups shrink to nothing when idle.
    """

    name: str
    training: Fleet
    data: Fleet

    def groups(self) -> tuple[tuple[str, Fleet], ...]:
        """The worker groups by name."""
        return (("training", self.training), ("data", self.data))


CLUSTERS = {
    # The d768 rung on one 8-GPU server.
    "node": Cluster(
        "node",
        training=Fleet(
            workers=8,
            cpus_per_worker=12,
            gpus_per_worker=1,
            workers_per_node=8,
            memory_gb_per_node=960,
            accelerator="H100",
        ),
        data=Fleet(workers=4, cpus_per_worker=28, workers_per_node=1, memory_gb_per_node=112, spot=True),
    ),
    # The 535B run: 704 GPUs, 11 racks of 16 nodes with 4 GPUs each.
    "hero": Cluster(
        "hero",
        training=Fleet(
            workers=704,
            cpus_per_worker=32,
            gpus_per_worker=1,
            workers_per_node=4,
            memory_gb_per_node=840,
            accelerator="GB200",
        ),
        data=Fleet(workers=256, cpus_per_worker=60, workers_per_node=1, memory_gb_per_node=240, spot=True),
    ),
}
