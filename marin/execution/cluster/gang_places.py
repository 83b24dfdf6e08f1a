"""Places of a gang on a cluster: one bundle a node with all its workers, around avoided nodes, in the size there is.

A placement group is had whole or not at all, so ranks of a node are together, and no half gang holds what another
needs. Spare nodes are held by a group of their own, which nobody waits for.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import ray
from ray.util.placement_group import (
    PlacementGroup,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

from marin.execution.cluster.gang_nodes import NodeFaults, node_names
from marin.execution.cluster.resources import demand_text, is_fixed, missing_resources
from marin.execution.failures import StepError
from marin.execution.fleet import Fleet
from marin.execution.running.claims import Claim
from marin.execution.running.tasks import Report

PLACE_SECONDS = 10.0
"""Between two words about a gang that waits for its places."""
TRY_SECONDS = 5.0
"""For a group to form where there is room. Ray needs well under a second, and half a minute to tell a dead node."""
NODE_ID = "ray.io/node-id"

logger = logging.getLogger(__name__)


def gang_prefix(run: str, claim: Claim) -> str:
    """How the names of the placement groups and ranks begin that were made under a claim."""
    return f"{run}/{claim.key}/"


def remove_gangs(run: str, claim: Claim) -> None:
    """Give back the places of gangs whose step's own process is gone; Ray keeps them as long as the driver lives."""
    prefix = gang_prefix(run, claim)
    for group in placement_group_table().values():
        if group["name"].startswith(prefix) and group["state"] != "REMOVED":
            with contextlib.suppress(ValueError):  # it was removed just now
                remove_placement_group(get_placement_group(group["name"]))


@dataclass
class Held:
    """Places that a gang holds: for each worker the group's bundle; and the group of the spare nodes."""

    workers: int
    group: PlacementGroup
    bundles: list[int]
    spares: PlacementGroup | None = None

    def give_back(self) -> None:
        """Let go of all of it."""
        remove_placement_group(self.group)
        if self.spares is not None:
            remove_placement_group(self.spares)


class Places:
    """Where a step's gangs go, one after the other. `sizes` are the allowed numbers of workers, largest first."""

    def __init__(
        self, prefix: str, display: str, fleet: Fleet, sizes: Sequence[int], faults: NodeFaults, report: Report
    ) -> None:
        self._prefix = prefix
        self._display = display
        self._fleet = fleet
        self._sizes = sorted(sizes, reverse=True)
        self._faults = faults
        self._report = report
        self._current = self._sizes[0]
        self._changed = time.monotonic()
        self._growth: tuple[int, PlacementGroup, float] | None = None

    def take(self, within: float = math.inf) -> Held:
        """Wait for places of the largest size that there is room for, for `within` seconds at the most.

        The largest is waited for with the fleet's patience, unless the last gang was smaller already, or the cluster
        says that no node will come. Avoided nodes are taken back when there is room nowhere else.

        Raises:
            StepError: no size can ever have its places, or none had them in time; says what is missing.
        """
        self._check_possible()
        begun = time.monotonic()
        patience = self._fleet.elastic.patience_seconds if self._current == self._sizes[0] else TRY_SECONDS
        while True:
            avoided = self._avoided()
            if avoided and self._nothing_else(avoided, time.monotonic() - begun):
                self._readmit(avoided)
                continue
            for size, seconds in self._worth_trying(avoided, patience):
                held = self._formed(size, avoided, min(seconds, within))
                if held is not None:
                    if size != self._current:
                        self._changed = time.monotonic()
                    self._current = size
                    return held
            patience = PLACE_SECONDS
            if time.monotonic() - begun >= within:
                size = self._sizes[-1]
                raise StepError(
                    f"no places for the {size} workers of {self._display} in {within:g} s, each with "
                    f"{demand_text(self._bundle(1))}: free them, add nodes, or take a smaller fleet"
                )

    def may_grow(self) -> int | None:
        """A larger size for which the missing places are held, if there is one; to be asked every few seconds.

        Nothing is asked of the cluster before the gang has had its size for the fleet's interval.
        """
        larger = [size for size in self._sizes if size > self._current]
        if not larger or time.monotonic() - self._changed < self._fleet.elastic.interval_seconds:
            return None
        if self._growth is None:
            self._growth = self._asked(larger[0], self._current)
        size, group, since = self._growth
        if placement_group_table(group)["state"] == "CREATED":
            return size
        if len(larger) > 1 and time.monotonic() - since > PLACE_SECONDS:
            remove_placement_group(group)
            position = larger.index(size) + 1
            self._growth = self._asked(larger[position % len(larger)], self._current)
        return None

    def drop_growth(self) -> None:
        """Let go of what was held for a larger gang."""
        if self._growth is not None:
            remove_placement_group(self._growth[1])
            self._growth = None
            self._changed = time.monotonic()

    # --- inside ---

    def _worth_trying(self, avoided: frozenset[str], patience: float) -> Iterator[tuple[int, float]]:
        """Sizes and how long to wait for each. Where only one is allowed, anywhere, it is waited for without end."""
        largest = self._sizes[0]
        if len(self._sizes) == 1:
            yield largest, patience if avoided else math.inf
            return
        fitting = [size for size in self._sizes if self._may_fit(size, avoided)]
        if largest not in fitting and not (fitting and is_fixed()):
            yield largest, patience if fitting else PLACE_SECONDS
        for size in fitting:
            yield size, patience if size == largest else TRY_SECONDS

    def _bundle(self, load: int) -> dict[str, float]:
        bundle = {"CPU": float(self._fleet.cpus_per_worker) * load}
        if self._fleet.gpus_per_worker:
            bundle["GPU"] = float(self._fleet.gpus_per_worker) * load
        return bundle

    def _check_possible(self) -> None:
        """Say at once what is missing when not even the smallest size can ever have its places."""
        size = self._sizes[-1]
        bundle = self._bundle(max(self._fleet.node_loads(size)))
        lacking = missing_resources(bundle)
        if not lacking and is_fixed():
            for name, amount in self._bundle(size).items():
                total = ray.cluster_resources().get(name, 0.0)
                if total < amount:
                    lacking = f"asks for {amount:g} {name} in all; the cluster has {total:g}"
        if lacking:
            raise StepError(f"the gang of {self._display} ({size} workers) {lacking}")

    def _may_fit(self, size: int, avoided: frozenset[str]) -> bool:
        """Whether the living nodes but these, all idle, would hold a gang of that size."""
        loads = self._fleet.node_loads(size)
        bundle = self._bundle(max(loads))
        room = sum(
            int(min(node["Resources"].get(name, 0.0) // amount for name, amount in bundle.items()))
            for node in ray.nodes()
            if node["Alive"] and node["NodeID"] not in avoided
        )
        return room >= len(loads)

    def _avoided(self) -> frozenset[str]:
        nodes = node_names()
        self._faults.see(nodes)
        return frozenset(self._faults.avoided(nodes))

    def _nothing_else(self, avoided: frozenset[str], waited: float) -> bool:
        """Whether there is no room but on avoided nodes, and none will come, or did not in time."""
        if is_fixed():
            return not self._may_fit(self._sizes[-1], avoided)
        return waited >= self._fleet.elastic.patience_seconds

    def _readmit(self, avoided: frozenset[str]) -> None:
        names = ", ".join(sorted(self._faults.name(node) for node in avoided))
        self._faults.readmit()
        text = f"the gang of {self._display} takes avoided nodes back, as nothing else is left: {names}"
        logger.warning("%s", text)
        self._report({"event": "gang.readmitted", "text": text, "nodes": names})

    def _tell_waiting(self, size: int) -> None:
        loads = self._fleet.node_loads(size)
        unit = f"of {len(loads)} nodes' places with {demand_text(self._bundle(max(loads)))}"
        self._report({"done": 0, "total": None, "unit": unit, "figures": {}})

    def _group(
        self, loads: Sequence[int], avoided: frozenset[str], what: str, strategy: str = "PACK"
    ) -> PlacementGroup:
        bundles = [self._bundle(load) for load in loads]
        selector = [{NODE_ID: f"!in({','.join(sorted(avoided))})"}] * len(bundles) if avoided else None
        name = f"{self._prefix}{what}-{uuid.uuid4().hex}"
        return placement_group(bundles, strategy=strategy, name=name, bundle_label_selector=selector)

    def _formed(self, size: int, avoided: frozenset[str], seconds: float) -> Held | None:
        loads = self._fleet.node_loads(size)
        group = self._group(loads, avoided, "gang")
        try:
            if not self._is_ready(group, size, seconds):
                remove_placement_group(group)
                return None
            bundles = [index for index, load in enumerate(loads) for _ in range(load)]
            # What a smaller gang lacks comes before spares.
            spares = self._spare_nodes(group, avoided) if size == self._sizes[0] else None
            return Held(size, group, bundles, spares)
        except BaseException:
            remove_placement_group(group)
            raise

    def _is_ready(self, group: PlacementGroup, size: int, seconds: float) -> bool:
        ready = group.ready()
        deadline = time.monotonic() + seconds
        while True:
            left = max(0.0, deadline - time.monotonic())
            if ray.wait([ready], timeout=min(PLACE_SECONDS, left))[0]:
                return True
            if time.monotonic() >= deadline:
                return False
            self._tell_waiting(size)

    def _spare_nodes(self, group: PlacementGroup, avoided: frozenset[str]) -> PlacementGroup | None:
        if not self._fleet.spares:
            return None
        taken = frozenset(placement_group_table(group)["bundles_to_node_id"].values())
        loads = [self._fleet.workers_per_node] * self._fleet.spares
        return self._group(loads, avoided | taken, "spares", "STRICT_SPREAD")

    def _asked(self, size: int, current: int) -> tuple[int, PlacementGroup, float]:
        """A group for the nodes that a larger gang has more; for all of them where the gang's own are filled up."""
        loads, own = self._fleet.node_loads(size), self._fleet.node_loads(current)
        more = loads[len(own) :] if loads[: len(own)] == own else loads
        return size, self._group(more, self._avoided(), "growth"), time.monotonic()
