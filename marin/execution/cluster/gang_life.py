"""One life of a gang: its ranks are started on their places, watched, and all ended when one of them is lost."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray
import ray.exceptions
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from marin.execution.cluster.failures import LOST_WORKER, ray_failure
from marin.execution.cluster.gang_network import interface_environment
from marin.execution.cluster.gang_nodes import is_hardware
from marin.execution.cluster.gang_places import Held
from marin.execution.cluster.gang_rank import NAMESPACE, Place, Rank, Stop
from marin.execution.cluster.nodes import Standard
from marin.execution.failures import FailureClass
from marin.execution.running.budgets import UNREACHABLE
from marin.execution.running.inline import rank_environment
from marin.execution.running.tasks import RankOutcome, Report, RunSpec
from marin.execution.running.worker import Failure
from marin.execution.secrets import SecretValues

ANSWER_SECONDS = 40.0
"""How long a rank may take to answer that it lives. Ray needs up to half a minute to tell that a node is gone."""
LOOK_SECONDS = 2.0
"""Between two looks at what may end a gang from outside."""

logger = logging.getLogger(__name__)


class GangEnded(Exception):
    """A life that ended without results: why, and the places of the ranks whose fault it was.

    `leaving` are nodes that go away soon, with the reason; `final` says that the run itself ends.
    """

    def __init__(
        self, failure: Failure, blamed: Sequence[Place] = (), leaving: dict[str, str] | None = None, final: bool = False
    ) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.blamed = tuple(blamed)
        self.leaving = leaving or {}
        self.final = final


class Resize(Exception):
    """A life that was ended in order, to go on with another number of workers."""


@dataclass(frozen=True)
class Outside:
    """What is looked at beside the ranks: a reason to give the gang another size, and nodes that are being drained."""

    resize: Callable[[], str | None]
    draining: Callable[[], dict[str, str]]


def ordered(places: Sequence[Place]) -> list[int]:
    """The order of workers in which those of one fast domain are neighbours, and in it those of one host, and of one
    node; each comes as it first appears.
    """
    domains = [place.domain for place in places]
    hosts = [place.address for place in places]
    nodes = [place.node for place in places]

    def rank_of(worker: int) -> tuple[int, int, int]:
        return domains.index(domains[worker]), hosts.index(hosts[worker]), nodes.index(nodes[worker])

    return sorted(range(len(places)), key=rank_of)


class Ranks:
    """The processes of one gang, on the places that it holds, in the order of their ranks once they are prepared."""

    def __init__(self, spec: RunSpec, held: Held, name: str, standard: Standard) -> None:
        self.spec = spec
        self.actors: list[Any] = []
        self.places: list[Place] = []
        self._held = held
        self._name = name
        self._standard = standard

    def prepare(self) -> None:
        """Start the processes and find out where they are, and whether they reach rank 0.

        Raises:
            GangEnded: a process did not come up, or its node cannot run a rank.
        """
        fleet = self.spec.fleet
        for worker, bundle in enumerate(self._held.bundles):
            strategy = PlacementGroupSchedulingStrategy(self._held.group, placement_group_bundle_index=bundle)
            options = {"num_cpus": fleet.cpus_per_worker, "num_gpus": fleet.gpus_per_worker}
            name = {"name": f"{self._name}/{worker}", "namespace": NAMESPACE}
            self.actors.append(Rank.options(scheduling_strategy=strategy, **options, **name).remote())
        bare = replace(self.spec, secrets=SecretValues())  # Ray's object store may spill to disk
        try:
            prepared = ray.get([actor.prepare.remote(bare, self._standard) for actor in self.actors])
        except BaseException as error:
            raise GangEnded(ray_failure(error, f"a rank of {self.spec.display}")) from None
        places = []
        for place in prepared:
            if isinstance(place, Failure):
                raise GangEnded(place)
            places.append(place)
        order = ordered(places)
        self.actors = [self.actors[worker] for worker in order]
        self.places = [places[worker] for worker in order]
        self._knock()

    def _knock(self) -> None:
        """One rank of every other node opens a connection to rank 0's address."""
        first = self.places[0]
        visitors = {place.node: rank for rank, place in reversed(list(enumerate(self.places)))}
        del visitors[first.node]
        if not visitors:
            return
        try:
            port = ray.get(self.actors[0].open_door.remote(first.address))
            asked = [self.actors[rank].knock.remote(first.address, port) for rank in visitors.values()]
            answers = ray.get(asked)
        except BaseException as error:
            raise GangEnded(ray_failure(error, f"a rank of {self.spec.display}")) from None
        silent = {rank: answer for rank, answer in zip(visitors.values(), answers, strict=True) if answer}
        if silent:
            told = "; ".join(f"{self.places[rank].host} ({answer})" for rank, answer in sorted(silent.items()))
            message = (
                f"no connection to rank 0 of {self.spec.display} on {first.host} ({first.address}:{port}) from {told}: "
                "open the network between these hosts, or name the right interface in fleet.interface"
            )
            failure = Failure(FailureClass.preempted, UNREACHABLE, message, "", first.host)
            alone = len(silent) == len(visitors) > 1  # nobody reaches rank 0: it is that node
            raise GangEnded(failure, [first] if alone else [self.places[rank] for rank in silent])

    def environment(self, rank: int) -> dict[str, str]:
        """What torch finds in a rank's environment."""
        first = self.places[0]
        hosts = [place.address for place in self.places]
        local = hosts[:rank].count(hosts[rank])
        variables = rank_environment(
            rank, len(hosts), local, hosts.count(hosts[rank]), first.address, first.port
        ) | interface_environment(self.spec.fleet.interface, hosts[0])
        return variables

    def kill(self) -> None:
        """End all processes at once."""
        for actor in self.actors:
            with contextlib.suppress(Exception):
                ray.kill(actor)


class Life:
    """The ranks at work, from their start until all have a result or one has none."""

    def __init__(self, ranks: Ranks, report: Report, outside: Outside) -> None:
        self._ranks = ranks
        self._spec = ranks.spec
        self._report = report
        self._outside = outside
        self._messages: queue.Queue[tuple[int, str, Any]] = queue.Queue()
        self._outcomes: dict[int, RankOutcome] = {}
        self._stopped: dict[int, Failure] = {}
        self._order: Stop | None = None
        self._resizing = False
        self._final = False
        self._leaving: dict[str, str] = {}
        self._deadline = float("inf")

    def run(self, entry: Callable[[Any], Any], payload: Any) -> list[RankOutcome]:
        """Start the work and watch it.

        Raises:
            GangEnded: a rank is lost, failed or hangs, or the gang was asked to end.
            Resize: the gang ended in order, to go on with another number of workers.
        """
        bare = replace(self._spec, secrets=SecretValues())
        life = uuid.uuid4().hex[:8]
        for rank, actor in enumerate(self._ranks.actors):
            folder = f"{self._spec.attempt_folder}/gang-{life}/rank{rank}"
            environment = self._ranks.environment(rank)
            stream = actor.run.remote(environment, bare, self._spec.secrets, folder, entry, payload)
            threading.Thread(target=self._listen, args=(rank, stream), daemon=True).start()
        looked = time.monotonic()
        while len(self._outcomes) + len(self._stopped) < len(self._ranks.actors):
            with contextlib.suppress(queue.Empty):
                self._take(*self._messages.get(timeout=LOOK_SECONDS))
            if time.monotonic() - looked >= LOOK_SECONDS:
                looked = time.monotonic()
                self._look_outside()
            if time.monotonic() > self._deadline:
                self._end(f"{len(self._ranks.actors) - len(self._stopped)} ranks did not end in time and are killed")
        if self._stopped:
            self._end("it has saved")
        return [self._outcomes[rank] for rank in range(len(self._ranks.actors))]

    def _listen(self, rank: int, stream: Any) -> None:
        try:
            for reference in stream:
                kind, value = ray.get(reference)
                self._messages.put((rank, kind, value))
        except BaseException as error:
            self._messages.put((rank, "failed", ray_failure(error, f"rank {rank} of {self._spec.display}")))
        else:
            self._messages.put((rank, "ended", None))

    def _take(self, rank: int, kind: str, value: Any) -> None:
        if kind == "progress" and rank == 0:
            self._report(value)
        elif kind == "done":
            self._outcomes[rank] = value
        elif kind == "log" and value:
            logger.info("log of rank %d:\n%s", rank, value)
        elif kind == "stopping":
            if value.leaving:
                self._leaving[self._ranks.places[rank].node] = value.reason
            self._stop(value, but=rank)
        elif kind == "failed" and _is_stop(value) and (self._order is not None or value.error == "Preempted"):
            self._stopped[rank] = value
            self._stop(Stop(value.message), but=rank)
        elif kind == "failed":
            self._fail(rank, value)
        elif kind == "ended" and rank not in self._outcomes and rank not in self._stopped:
            message = f"rank {rank} of {self._spec.display} went away"
            self._fail(rank, Failure(FailureClass.preempted, LOST_WORKER, message, "", ""))

    # --- ends ---

    def _stop(self, order: Stop, but: int | None = None) -> None:
        """Ask all ranks to save and to end, and give them the fleet's time for it."""
        self._final = self._final or order.final
        if self._order is not None:
            return
        self._order = order
        self._deadline = time.monotonic() + self._spec.fleet.stop_seconds
        logger.warning("the gang of %s is asked to end: %s", self._spec.display, order.reason)
        self._report({"event": "gang.stopping", "text": f"saves and ends: {order.reason}"})
        for rank, actor in enumerate(self._ranks.actors):
            if rank != but and rank not in self._outcomes:
                actor.stop.remote(replace(order, leaving=False))

    def _end(self, how: str) -> None:
        reason = self._order.reason if self._order is not None else "asked to end"
        if self._resizing and not self._final:
            raise Resize(reason)
        message = f"the gang of {self._spec.display} was asked to end ({reason}); {how}"
        raise GangEnded(
            Failure(FailureClass.preempted, "Preempted", message, "", ""), (), self._leaving, final=self._final
        )

    def _fail(self, rank: int, value: Failure) -> None:
        failure, guilty = self._blame(rank, value)
        # A silent store is nobody's fault, and in a collective that hangs all ranks stall alike.
        places = [self._ranks.places[guilty]] if failure.error == LOST_WORKER else []
        if is_hardware(failure):
            failure = replace(failure, kind=FailureClass.preempted)
            places = [self._ranks.places[guilty]]
        raise GangEnded(failure, places, self._leaving, final=self._final)

    def _look_outside(self) -> None:
        nodes = {place.node for place in self._ranks.places}
        for node, reason in self._outside.draining().items():
            if node in nodes and node not in self._leaving:
                self._leaving[node] = reason
                self._stop(Stop(reason))
        if self._order is None:
            larger = self._outside.resize()
            if larger is not None:
                self._resizing = True
                self._stop(Stop(larger))

    def _blame(self, rank: int, first: Failure) -> tuple[Failure, int]:
        """The lost rank behind a rank's error, if there is one: a broken collective is the effect, not the cause."""
        if first.kind is not FailureClass.error or first.expected:
            return first, rank
        actors = self._ranks.actors
        asked = {actor.answer.remote(): other for other, actor in enumerate(actors) if other != rank}
        ready, _ = ray.wait(list(asked), num_returns=len(asked), timeout=ANSWER_SECONDS) if asked else ([], [])
        for reference in ready:
            try:
                ray.get(reference)
            except ray.exceptions.RayError as error:
                found = ray_failure(error, f"rank {asked[reference]} of {self._spec.display}")
                if found.kind is FailureClass.preempted:
                    return found, asked[reference]
        return first, rank


def _is_stop(failure: Failure) -> bool:
    """Whether a rank ended as it was asked to."""
    return failure.kind is FailureClass.preempted and failure.error == "Preempted"
