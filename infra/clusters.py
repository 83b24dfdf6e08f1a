"""The clusters that are committed in rendered/: the fleet of a scale, and the CPU machines of its data stages."""

from __future__ import annotations

from dataclasses import dataclass

from marin.execution import Fleet
from marin.recipes.registry import scale_named


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


def _cluster(name: str, data: Fleet) -> Cluster:
    """The cluster of a scale: its own fleet trains."""
    return Cluster(name, training=scale_named(name).fleet, data=data)


CLUSTERS = {
    cluster.name: cluster
    for cluster in (
        _cluster("node", Fleet(workers=4, cpus_per_worker=28, memory_gb_per_node=112, spot=True)),
        _cluster("hero", Fleet(workers=256, cpus_per_worker=60, memory_gb_per_node=240, spot=True)),
    )
}
