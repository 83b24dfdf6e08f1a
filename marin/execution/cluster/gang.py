"""A gang: one actor per worker of a fleet, in a placement group, as the ranks of one torch.distributed world.

One dead rank ends all of them at once, instead of leaving the others in a collective until it times out; then the
gang is started again and goes on from the state. What a rank's own code raises ends the step: a rank that raises while
all others still answer has an error of its own, and not one of a collective that broke.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import ray
import ray.exceptions
from ray.util import get_node_ip_address
from ray.util.placement_group import (
    PlacementGroup,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from marin.execution.cluster.failures import ray_failure
from marin.execution.cluster.nodes import Standard
from marin.execution.cluster.resources import demand_text, is_fixed, missing_resources, node_resources
from marin.execution.cluster.streams import Message, messages_of
from marin.execution.failures import FailureClass, StepError
from marin.execution.running.captured_log import captured_log
from marin.execution.running.claims import Claim, check_lease
from marin.execution.running.context import run_rank
from marin.execution.running.inline import free_port, rank_environment
from marin.execution.running.scratch import scratch_folder
from marin.execution.running.tasks import RankOutcome, Report, RunSpec
from marin.execution.running.worker import Failure, StepFailed, failure_of
from marin.execution.secrets import SecretValues

RESTART_BUDGET = 20
LONG_LIFE_SECONDS = 1800.0
"""A gang that lived for so long was no failed start: its restarts are counted anew."""
RESTART_PAUSE_SECONDS = 1.0
RESTART_PAUSE_LIMIT = 60.0
ANSWER_SECONDS = 40.0
"""How long a rank may take to answer that it lives. Ray needs up to half a minute to tell that a node is gone."""
PLACE_SECONDS = 10.0
"""Between two words about a gang that waits for its places."""

logger = logging.getLogger(__name__)


class _RankProcess:
    """One worker process."""

    def prepare(self, spec: RunSpec, standard: Standard) -> tuple[str, int] | Failure:
        """This node's address and a port that is free on it, or why no rank can run here."""
        try:
            standard.check_here(spec)
        except Exception as error:
            return failure_of(error)
        address = get_node_ip_address()
        return address, free_port(address)

    def run(
        self,
        environment: dict[str, str],
        spec: RunSpec,
        secrets: SecretValues,
        folder: str,
        entry: Callable[[Any], Any],
        payload: Any,
    ) -> Iterator[Message]:
        """Stream progress, then the log, then the outcome or the failure, after which nobody listens."""
        os.environ.update(environment)
        full = replace(spec, secrets=secrets)

        def work(send: Callable[[Message], None]) -> None:
            with captured_log() as log, scratch_folder() as scratch:
                try:
                    outcome = run_rank(full, folder, entry, payload, scratch, lambda p: send(("progress", p)))
                    last: Message = ("done", outcome)
                except BaseException as error:
                    last = ("failed", failure_of(error))
                send(("log", log.getvalue()))
                send(last)

        yield from messages_of(work)

    @ray.method(concurrency_group="control")  # type: ignore[untyped-decorator]  # Ray's own
    def answer(self) -> bool:
        """Show that this process lives, beside its work."""
        return True


_Rank = ray.remote(max_restarts=0, max_task_retries=0, concurrency_groups={"control": 1})(_RankProcess)


def run_gang(
    spec: RunSpec, entry: Callable[[Any], Any], payload: Any, report: Report, standard: Standard
) -> list[RankOutcome]:
    """Run a gang to its end, starting it again while ranks get lost, within the budget."""
    restarts = 0
    while True:
        born = time.monotonic()
        try:
            return _Gang(spec, entry, payload, report, standard).run()
        except StepFailed as error:
            failure = error.failure
            if time.monotonic() - born > LONG_LIFE_SECONDS:
                restarts = 0
            if failure.kind is not FailureClass.preempted or restarts >= RESTART_BUDGET:
                raise
        check_lease(spec.store, spec.claim)
        restarts += 1
        logger.warning("gang of %s: %s; restart %d of %d", spec.display, failure.message, restarts, RESTART_BUDGET)
        report({"done": 0, "total": None, "unit": "restarts", "figures": {"restarts": restarts}})
        time.sleep(min(RESTART_PAUSE_SECONDS * 2 ** (restarts - 1), RESTART_PAUSE_LIMIT))


def gang_prefix(run: str, claim: Claim) -> str:
    """How the names of the placement groups begin that were made under a claim."""
    return f"{run}/{claim.key}/"


def remove_gangs(run: str, claim: Claim) -> None:
    """Give back the places of gangs whose step's own process is gone; Ray keeps them as long as the driver lives."""
    prefix = gang_prefix(run, claim)
    for group in placement_group_table().values():
        if group["name"].startswith(prefix) and group["state"] != "REMOVED":
            with contextlib.suppress(ValueError):  # it was removed just now
                remove_placement_group(get_placement_group(group["name"]))


def by_host(hosts: Sequence[str]) -> list[int]:
    """The order of workers in which those of one host are neighbours; hosts come as they first appear."""
    return sorted(range(len(hosts)), key=lambda worker: hosts.index(hosts[worker]))


class _Gang:
    """One life of a gang."""

    def __init__(
        self, spec: RunSpec, entry: Callable[[Any], Any], payload: Any, report: Report, standard: Standard
    ) -> None:
        self.spec = spec
        self.entry = entry
        self.payload = payload
        self.report = report
        self.standard = standard
        self.messages: queue.Queue[tuple[int, str, Any]] = queue.Queue()
        self.actors: list[Any] = []

    def run(self) -> list[RankOutcome]:
        group = self._place()
        try:
            self._start(group)
            return self._watch()
        finally:
            for actor in self.actors:
                with contextlib.suppress(Exception):
                    ray.kill(actor)
            remove_placement_group(group)

    def _place(self) -> PlacementGroup:
        """Reserve a place for every rank; says at once what is missing when that can never be."""
        fleet = self.spec.fleet
        bundle = {"CPU": float(fleet.cpus_per_worker)}
        if fleet.gpus_per_worker:
            bundle["GPU"] = float(fleet.gpus_per_worker)
        lacking = missing_resources(bundle)
        if not lacking and is_fixed():
            for name, amount in bundle.items():
                total = ray.cluster_resources().get(name, 0.0)
                if total < amount * fleet.workers:
                    lacking = f"asks for {amount * fleet.workers:g} {name} in all; the cluster has {total:g}"
        if lacking:
            raise StepError(f"the gang of {self.spec.display} ({fleet.workers} workers) {lacking}")
        strategy = "PACK" if fleet.nodes > 1 or not self._fits_one_node(bundle) else "STRICT_PACK"
        name = f"{gang_prefix(self.spec.run, self.spec.claim)}{uuid.uuid4().hex}"
        group = placement_group([bundle] * fleet.workers, strategy=strategy, name=name)
        ready = group.ready()
        while not ray.wait([ready], timeout=PLACE_SECONDS)[0]:
            unit = f"of {fleet.workers} places with {demand_text(bundle)}"
            self.report({"done": 0, "total": None, "unit": unit, "figures": {}})
        return group

    def _fits_one_node(self, bundle: dict[str, float]) -> bool:
        wanted = {name: amount * self.spec.fleet.workers for name, amount in bundle.items()}
        return any(all(node.get(name, 0.0) >= amount for name, amount in wanted.items()) for node in node_resources())

    def _start(self, group: PlacementGroup) -> None:
        fleet = self.spec.fleet
        for rank in range(fleet.workers):
            strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank)
            options = {"num_cpus": fleet.cpus_per_worker, "num_gpus": fleet.gpus_per_worker}
            self.actors.append(_Rank.options(scheduling_strategy=strategy, **options).remote())
        bare = ray.put(replace(self.spec, secrets=SecretValues()))  # Ray's object store may spill to disk
        try:
            prepared = ray.get([actor.prepare.remote(bare, self.standard) for actor in self.actors])
        except BaseException as error:
            raise StepFailed(ray_failure(error, f"a rank of {self.spec.display}")) from None
        places = []
        for place in prepared:
            if isinstance(place, Failure):
                raise StepFailed(place)
            places.append(place)
        order = by_host([address for address, _ in places])
        self.actors = [self.actors[worker] for worker in order]
        places = [places[worker] for worker in order]
        hosts = [address for address, _ in places]
        life = uuid.uuid4().hex[:8]
        for rank, actor in enumerate(self.actors):
            local = hosts[:rank].count(hosts[rank])
            environment = rank_environment(rank, len(hosts), local, hosts.count(hosts[rank]), *places[0])
            if hosts[0].startswith("127."):
                environment["GLOO_SOCKET_IFNAME"] = "lo"
            folder = f"{self.spec.attempt_folder}/gang-{life}/rank{rank}"
            stream = actor.run.remote(environment, bare, self.spec.secrets, folder, self.entry, self.payload)
            threading.Thread(target=self._listen, args=(rank, stream), daemon=True).start()

    def _listen(self, rank: int, stream: Any) -> None:
        try:
            for reference in stream:
                kind, value = ray.get(reference)
                self.messages.put((rank, kind, value))
        except BaseException as error:
            self.messages.put((rank, "failed", ray_failure(error, f"rank {rank} of {self.spec.display}")))
        else:
            self.messages.put((rank, "ended", None))

    def _watch(self) -> list[RankOutcome]:
        outcomes: dict[int, RankOutcome] = {}
        while len(outcomes) < len(self.actors):
            rank, kind, value = self.messages.get()
            if kind == "progress" and rank == 0:
                self.report(value)
            elif kind == "done":
                outcomes[rank] = value
            elif kind == "failed":
                raise StepFailed(self._blame(rank, value))
            elif kind == "log" and value:
                logger.info("log of rank %d:\n%s", rank, value)
            elif kind == "ended" and rank not in outcomes:
                raise StepFailed(
                    Failure(
                        FailureClass.preempted, "WorkerLost", f"rank {rank} of {self.spec.display} went away", "", ""
                    )
                )
        return [outcomes[rank] for rank in range(len(self.actors))]

    def _blame(self, rank: int, first: Failure) -> Failure:
        """The lost rank behind a rank's error, if there is one: a broken collective is the effect, not the cause."""
        if first.kind is not FailureClass.error or first.expected:
            return first
        asked = {actor.answer.remote(): other for other, actor in enumerate(self.actors) if other != rank}
        ready, _ = ray.wait(list(asked), num_returns=len(asked), timeout=ANSWER_SECONDS) if asked else ([], [])
        for reference in ready:
            try:
                ray.get(reference)
            except ray.exceptions.RayError as error:
                found = ray_failure(error, f"rank {asked[reference]} of {self.spec.display}")
                if found.kind is FailureClass.preempted:
                    return found
        return first
