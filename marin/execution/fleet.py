"""Where a step runs: never part of its identity."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum


@dataclass(frozen=True)
class Restarts:
    """How often a gang is started again, for each way in which it can end early, and which nodes it then avoids."""

    preemptions: int = 100
    """Ranks or nodes that went away, or were asked back."""
    stalls: int = 3
    """Ranks that made no progress, as a watchdog found."""
    errors: int = 0
    """Errors of the step's own code; those that are meant for people are never tried again."""
    refill_seconds: float = 1800.0
    """A gang that lived for so long was no failed start: all budgets are full again."""
    faults_of_a_node: int = 2
    """A node on which ranks died so often in a run is avoided, until nothing else is left."""

    def __post_init__(self) -> None:
        for name in ("preemptions", "stalls", "errors"):
            if getattr(self, name) < 0:
                raise ValueError(f"fleet.restarts.{name} is {getattr(self, name)}; give 0 for never, or more")
        if self.refill_seconds <= 0 or self.faults_of_a_node < 1:
            raise ValueError(
                "fleet.restarts.refill_seconds must be positive and faults_of_a_node at least 1, got "
                f"{self.refill_seconds}, {self.faults_of_a_node}"
            )


@dataclass(frozen=True)
class Elastic:
    """Whether a gang may run with fewer workers than it asks for, and how soon it changes its size."""

    min_workers: int | None = None
    """The fewest workers; None for all or nothing."""
    patience_seconds: float = 300.0
    """How long the gang waits for all its places before it takes fewer."""
    interval_seconds: float = 1800.0
    """A smaller gang is ended for a larger one at the earliest after so long."""

    def __post_init__(self) -> None:
        if self.patience_seconds < 0 or self.interval_seconds < 0:
            raise ValueError(
                "fleet.elastic.patience_seconds and interval_seconds must not be negative, got "
                f"{self.patience_seconds}, {self.interval_seconds}"
            )


class NoticeSource(StrEnum):
    """Who says that a machine is asked back soon."""

    NONE = "none"
    GCE = "gce"
    """The metadata server of Google Cloud: `instance/preempted`, and maintenance that ends the machine."""
    AWS = "aws"
    """The metadata service of AWS: `spot/instance-action`."""
    FILE = "file"
    """A file that somebody makes on the node; its first line is the reason."""


@dataclass(frozen=True)
class Notices:
    """How a node learns that its machine is asked back, beside SIGTERM and Ray's own draining."""

    source: NoticeSource = NoticeSource.NONE
    file: str | None = None
    """The file of `source` FILE."""
    poll_seconds: float = 5.0

    def __post_init__(self) -> None:
        if (self.source is NoticeSource.FILE) != (self.file is not None):
            raise ValueError(f"fleet.notices.file is {self.file!r} and source {self.source.value!r}: they go together")
        if self.poll_seconds <= 0:
            raise ValueError(f"fleet.notices.poll_seconds must be positive, got {self.poll_seconds}")


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
    spares: int = 0
    """Nodes beyond those of the workers that are kept free beside a running gang, so that the ranks of a lost node have
    a place at once. The gang may use any node; which ones are spare is decided anew at every start.
    """
    domain_label: str = "marin.io/domain"
    """The label of nodes that share a fast network, such as the hosts of one NVLink domain: their ranks are neighbours.
    """
    interface: str | None = None
    """The network interface of collectives, None for the one that the node's address belongs to."""
    stop_seconds: float = 60.0
    """How long ranks have to save once they are asked to end; then they are killed."""
    elastic: Elastic = field(default_factory=Elastic)
    restarts: Restarts = field(default_factory=Restarts)
    notices: Notices = field(default_factory=Notices)

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

        if self.spares < 0 or self.stop_seconds <= 0:
            raise ValueError(
                f"fleet.spares must not be negative and fleet.stop_seconds positive, got {self.spares}, "
                f"{self.stop_seconds}"
            )
        if self.elastic.min_workers is not None and not 1 <= self.elastic.min_workers <= self.workers:
            raise ValueError(
                f"fleet.elastic.min_workers is {self.elastic.min_workers}; give 1 to fleet.workers {self.workers}, or "
                "null for all or nothing"
            )

    @property
    def single(self) -> Fleet:
        """One worker of this fleet, for a step that is no gang."""
        return replace(self, workers=1, workers_per_node=1, spares=0, elastic=Elastic())

    def of_size(self, workers: int) -> Fleet:
        """This fleet with fewer workers, on nodes of the same kind."""
        if workers == self.workers:
            return self
        per_node = min(workers, self.workers_per_node)
        least = self.elastic.min_workers
        return replace(
            self,
            workers=workers,
            workers_per_node=per_node if workers % per_node == 0 else 1,
            elastic=replace(self.elastic, min_workers=None if least is None else min(least, workers)),
        )

    def node_loads(self, workers: int) -> list[int]:
        """The workers of each node of a gang of that size: full nodes, and one with the rest."""
        full, rest = divmod(workers, self.workers_per_node)
        return [self.workers_per_node] * full + ([rest] if rest else [])

    @property
    def nodes(self) -> int:
        """Machines needed."""
        return self.workers // self.workers_per_node
