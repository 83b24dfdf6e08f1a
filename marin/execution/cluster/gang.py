"""A gang: one actor per worker of a fleet, on reserved places, as the ranks of one torch.distributed world.

One dead rank ends all of them at once, instead of leaving the others in a collective until it times out; then the
gang is started again and goes on from the state: elsewhere when a node failed it repeatedly, with fewer workers where
the fleet allows that, and with more when they come back. What a rank's own code raises ends the step: a rank that
raises while all others still answer has an error of its own, and not one of a collective that broke.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ray
import ray.exceptions

from marin.execution.cluster.gang_life import GangEnded, Life, Outside, Ranks, Resize
from marin.execution.cluster.gang_nodes import NodeFaults, node_names
from marin.execution.cluster.gang_places import Held, Places, gang_prefix
from marin.execution.cluster.nodes import Standard
from marin.execution.failures import FailureClass, StepError
from marin.execution.running.budgets import Budgets
from marin.execution.running.claims import check_lease
from marin.execution.running.tasks import RankOutcome, Report, RunSpec
from marin.execution.running.worker import StepFailed

logger = logging.getLogger(__name__)


def run_gang(
    spec: RunSpec,
    entry: Callable[[Any], Any],
    payload: Any,
    report: Report,
    standard: Standard,
    sizes: Sequence[int] = (),
) -> list[RankOutcome]:
    """Run a gang to its end, starting it again while ranks get lost, within the fleet's budgets.

    `sizes` are the numbers of workers with which the work can be done; without any, that of the fleet.
    """
    return _Gang(spec, entry, payload, report, standard, tuple(sizes) or (spec.fleet.workers,)).run()


@dataclass
class _Gang:
    """All lives of one gang."""

    spec: RunSpec
    entry: Callable[[Any], Any]
    payload: Any
    report: Report
    standard: Standard
    sizes: tuple[int, ...]
    restarts: int = 0
    budgets: Budgets = field(init=False)
    faults: NodeFaults = field(init=False)
    places: Places = field(init=False)

    def __post_init__(self) -> None:
        fleet = self.spec.fleet
        if max(self.sizes) > fleet.workers or min(self.sizes) < 1:
            raise StepError(f"run.gang of {self.spec.display}: sizes are {self.sizes}, of a fleet of {fleet.workers}")
        self.budgets = Budgets(fleet.restarts)
        self.faults = NodeFaults(fleet.restarts.faults_of_a_node)
        self.prefix = gang_prefix(self.spec.run, self.spec.claim)
        self.places = Places(self.prefix, self.spec.display, fleet, self.sizes, self.faults, self.report)

    def run(self) -> list[RankOutcome]:
        """Life after life."""
        while True:
            held = self.places.take()
            born = time.monotonic()
            try:
                return self._live(held)
            except Resize as order:
                self._tell("gang.resized", f"{held.workers} workers end for another size: {order}")
            except GangEnded as ended:
                self.budgets.lived(time.monotonic() - born)
                self._hold_against(ended)
                self._go_on_after(ended)
            finally:
                self.places.drop_growth()
                held.give_back()
            check_lease(self.spec.store, self.spec.claim)

    def _live(self, held: Held) -> list[RankOutcome]:
        spec = replace(self.spec, fleet=self.spec.fleet.of_size(held.workers))
        ranks = Ranks(spec, held, f"{self.prefix}{uuid.uuid4().hex[:12]}", self.standard)
        try:
            ranks.prepare()
            if held.workers != self.spec.fleet.workers:
                text = f"runs with {held.workers} of {self.spec.fleet.workers} workers until more are there"
                self._tell("gang.smaller", text, workers=held.workers)
            return Life(ranks, self.report, Outside(self._more, self._draining)).run(self.entry, self.payload)
        finally:
            ranks.kill()

    def _more(self) -> str | None:
        size = self.places.may_grow()
        return None if size is None else f"there are places for {size} workers"

    def _draining(self) -> dict[str, str]:
        """Nodes that Ray was told to empty, and why we leave them."""
        try:
            draining = ray._private.state.state.get_draining_nodes()  # Ray has no public question for it
        except ray.exceptions.RayError as error:
            logger.warning("which nodes are drained could not be asked: %s", error)
            return {}
        return {node: f"the node {self.faults.name(node)} is being drained" for node in draining}

    def _hold_against(self, ended: GangEnded) -> None:
        """Remember which nodes ended a gang; one that went away with its spot machine did nothing wrong."""
        alive = node_names()
        for node, reason in ended.leaving.items():
            self.faults.leave(node, reason)
        for place in ended.blamed:
            if self.spec.fleet.spot and place.node not in alive:
                continue
            if self.faults.blame(place.node):
                name = self.faults.name(place.node)
                text = f"the node {name} ({place.address}) is avoided: it ended {self.faults.limit} gangs of this run"
                self._tell("gang.node_avoided", text, node=name)

    def _go_on_after(self, ended: GangEnded) -> None:
        """Raise what the step fails with, or wait before the next life."""
        failure = ended.failure
        if ended.final:
            raise StepFailed(replace(failure, kind=FailureClass.cancelled))
        if not self.budgets.take(failure):
            raise StepFailed(self.budgets.spent_failure(failure))
        self.restarts += 1
        self._tell("gang.restarted", f"{failure.message}; {self.budgets.told(failure)}", failure=failure.kind.value)
        self.report({"done": 0, "total": None, "unit": "restarts", "figures": {"restarts": self.restarts}})
        time.sleep(self.budgets.pause())

    def _tell(self, kind: str, text: str, **facts: Any) -> None:
        logger.warning("gang of %s: %s", self.spec.display, text)
        self.report({"event": kind, "text": text, **facts})
