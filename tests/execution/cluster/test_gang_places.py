"""Which places a gang asks for, on a cluster that only says how many nodes it has and what is placed."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from marin.execution import Fleet, StepError
from marin.execution.cluster import gang_nodes, gang_places
from marin.execution.cluster.gang_nodes import NodeFaults
from marin.execution.cluster.gang_places import NODE_ID, Places
from marin.execution.fleet import Elastic


@dataclass
class Group:
    """A group that was asked for."""

    what: str
    cpus: list[float]
    strategy: str
    but: list[str]
    removed: bool = False

    def ready(self) -> Group:
        return self


@dataclass
class Cluster:
    """Nodes of two processors by name. Time passes only while somebody waits."""

    nodes: list[str]
    busy: list[str] = field(default_factory=list)
    fixed: bool = False
    groups: list[Group] = field(default_factory=list)
    now: float = 0.0

    def ask(self, bundles: list[dict[str, float]], strategy: str, name: str, bundle_label_selector: Any) -> Group:
        but = bundle_label_selector[0][NODE_ID].removeprefix("!in(").removesuffix(")") if bundle_label_selector else ""
        what = name.rpartition("/")[2].partition("-")[0]
        group = Group(what, [bundle["CPU"] for bundle in bundles], strategy, but.split(",") if but else [])
        self.groups.append(group)
        return group

    def is_placed(self, group: Group) -> bool:
        taken = set(self.busy) | set(group.but)
        return len([node for node in self.nodes if node not in taken]) >= len(group.cpus)

    def wait(self, groups: list[Group], timeout: float) -> tuple[list[Group], list[Group]]:
        ready = [group for group in groups if self.is_placed(group)]
        self.now += 0.0 if ready else timeout
        return ready, []

    def table(self, group: Group) -> dict[str, Any]:
        free = [node for node in self.nodes if node not in set(self.busy) | set(group.but)]
        placed = dict(enumerate(free[: len(group.cpus)]))
        return {"state": "CREATED" if self.is_placed(group) else "PENDING", "bundles_to_node_id": placed}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    found = Cluster(["a", "b"])

    def described() -> list[dict[str, Any]]:
        return [
            {"NodeID": node, "Alive": True, "NodeManagerHostname": f"host-{node}", "Resources": {"CPU": 2.0}}
            for node in found.nodes
        ]

    monkeypatch.setattr(gang_places, "placement_group", found.ask)
    monkeypatch.setattr(gang_places, "placement_group_table", found.table)
    monkeypatch.setattr(gang_places, "remove_placement_group", lambda group: setattr(group, "removed", True))
    monkeypatch.setattr(gang_places, "is_fixed", lambda: found.fixed)
    monkeypatch.setattr(gang_places, "missing_resources", lambda demand: "")
    monkeypatch.setattr(gang_places, "time", SimpleNamespace(monotonic=lambda: found.now))
    asked = SimpleNamespace(wait=found.wait, nodes=described, cluster_resources=lambda: {"CPU": 2.0 * len(found.nodes)})
    monkeypatch.setattr(gang_places, "ray", asked)
    monkeypatch.setattr(gang_nodes, "ray", asked)
    return found


def places(faults: NodeFaults | None = None, sizes: tuple[int, ...] = (4, 2), **fleet: Any) -> Places:
    """Of a gang of four on two nodes, or two on one."""
    elastic = Elastic(min_workers=min(sizes), patience_seconds=60.0, interval_seconds=100.0)
    wanted = Fleet(workers=4, workers_per_node=2, elastic=elastic, **fleet)
    return Places("run/", "model", wanted, sizes, faults or NodeFaults(2), lambda message: None)


def test_a_node_has_all_its_workers_in_one_bundle_and_spares_are_other_nodes(cluster: Cluster) -> None:
    cluster.nodes = ["a", "b", "c"]
    held = places(spares=1).take()
    gang, spares = cluster.groups
    assert (gang.what, gang.cpus, gang.strategy, gang.but) == ("gang", [2.0, 2.0], "PACK", [])
    assert (spares.what, spares.cpus, spares.strategy, spares.but) == ("spares", [2.0], "STRICT_SPREAD", ["a", "b"])
    assert (held.workers, held.bundles) == (4, [0, 0, 1, 1])
    held.give_back()
    assert gang.removed and spares.removed


def test_all_places_are_waited_for_with_patience_and_then_fewer_are_taken_without_spares(cluster: Cluster) -> None:
    cluster.busy = ["b"]
    held = places(spares=1).take()
    assert held.workers == 2
    assert 60 <= cluster.now < 80
    assert [(group.cpus, group.removed) for group in cluster.groups] == [([2.0, 2.0], True), ([2.0], False)]


def test_where_no_node_will_come_nobody_waits_for_one(cluster: Cluster) -> None:
    cluster.fixed, cluster.nodes = True, ["a"]
    assert places().take().workers == 2
    assert cluster.now == 0


def test_more_workers_are_asked_for_after_the_interval_and_a_failed_growth_waits_for_the_next(
    cluster: Cluster,
) -> None:
    cluster.busy = ["b"]
    wanted = places()
    wanted.take()
    taken = cluster.now
    assert wanted.may_grow() is None
    assert len(cluster.groups) == 2
    cluster.now = taken + 101
    cluster.busy = ["a", "b"]
    assert wanted.may_grow() is None
    assert (cluster.groups[-1].what, cluster.groups[-1].cpus) == ("growth", [2.0])
    cluster.busy = ["a"]
    assert wanted.may_grow() == 4
    wanted.drop_growth()
    assert cluster.groups[-1].removed
    assert wanted.may_grow() is None
    assert cluster.groups[-1].removed  # none is asked for again at once
    cluster.busy = []
    assert wanted.take().workers == 4


def test_avoided_nodes_are_left_out_and_taken_back_when_there_is_nothing_else(cluster: Cluster) -> None:
    said: list[dict[str, Any]] = []
    faults = NodeFaults(1)
    faults.see({"b": "host-b"})
    faults.blame("b")
    smaller = places(faults)
    assert smaller.take().workers == 2
    assert cluster.groups[-1].but == ["b"]
    only = places(faults, sizes=(4,))
    only._report = said.append
    assert only.take().workers == 4
    assert cluster.groups[-1].but == []
    assert [(line["event"], line["nodes"]) for line in said if "event" in line] == [("gang.readmitted", "host-b")]


def test_a_bounded_wait_says_what_it_waited_for(cluster: Cluster) -> None:
    cluster.busy = ["a", "b"]
    with pytest.raises(StepError, match="no places for the 4 workers of model in 30 s, each with 1 CPU"):
        places(sizes=(4,)).take(within=30)
    assert all(group.removed for group in cluster.groups)
