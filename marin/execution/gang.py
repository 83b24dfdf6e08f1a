"""A gang: one actor per worker of a fleet, in a placement group, as the ranks of one torch.distributed world.

One dead rank ends all of them at once, instead of leaving the others in a collective until it times out; then the
gang is started again and goes on from the state. What a rank's own code raises ends the step.
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
from typing import Any

import ray
from ray.util import get_node_ip_address
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from marin.execution.claims import check_lease
from marin.execution.cluster import FIXED, Message, messages_of, missing_resources, ray_failure
from marin.execution.context import RankOutcome, Report, RunSpec, run_rank
from marin.execution.failures import FailureClass, StepError
from marin.execution.inline import free_port, rank_environment
from marin.execution.scratch import scratch_folder
from marin.execution.worker import Failure, StepFailed, captured_log, failure_of

RESTART_BUDGET = 20
RESTART_PAUSE_SECONDS = 1.0
BLAME_SECONDS = 10.0
"""How long to look for a dead rank behind an error of a living one, whose collective broke."""

logger = logging.getLogger(__name__)


class _RankProcess:
    """One worker process."""

    def address(self) -> tuple[str, int]:
        """This node's address, and a port that is free on it."""
        address = get_node_ip_address()
        return address, free_port(address)

    def run(
        self, environment: dict[str, str], spec: RunSpec, folder: str, entry: Callable[[Any], Any], payload: Any
    ) -> Iterator[Message]:
        """Stream progress, then the log, then the outcome or the failure, after which nobody listens."""
        os.environ.update(environment)

        def work(send: Callable[[Message], None]) -> None:
            with captured_log() as log, scratch_folder() as scratch:
                try:
                    outcome = run_rank(spec, folder, entry, payload, scratch, lambda p: send(("progress", p)))
                    last: Message = ("done", outcome)
                except BaseException as error:
                    last = ("failed", failure_of(error))
                send(("log", log.getvalue()))
                send(last)

        yield from messages_of(work)


_Rank = ray.remote(max_restarts=0, max_task_retries=0)(_RankProcess)


def run_gang(spec: RunSpec, entry: Callable[[Any], Any], payload: Any, report: Report) -> list[RankOutcome]:
    """Run a gang to its end, starting it again while ranks get lost, within the budget."""
    restarts = 0
    while True:
        try:
            return _Gang(spec, entry, payload, report).run()
        except StepFailed as error:
            failure = error.failure
            if failure.kind is not FailureClass.preempted or restarts >= RESTART_BUDGET:
                raise
        check_lease(spec.store, spec.claim)
        restarts += 1
        logger.warning("gang of %s: %s; restart %d of %d", spec.display, failure.message, restarts, RESTART_BUDGET)
        report({"done": 0, "total": None, "unit": "restarts", "figures": {"restarts": restarts}})
        time.sleep(RESTART_PAUSE_SECONDS * min(2 ** (restarts - 1), 60))


def by_host(hosts: Sequence[str]) -> list[int]:
    """The order of workers in which those of one host are neighbours; hosts come as they first appear."""
    return sorted(range(len(hosts)), key=lambda worker: hosts.index(hosts[worker]))


class _Gang:
    """One life of a gang."""

    def __init__(self, spec: RunSpec, entry: Callable[[Any], Any], payload: Any, report: Report) -> None:
        self.spec = spec
        self.entry = entry
        self.payload = payload
        self.report = report
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
        if not lacking and ray.cluster_resources().get(FIXED):
            for name, amount in bundle.items():
                total = ray.cluster_resources().get(name, 0.0)
                if total < amount * fleet.workers:
                    lacking = f"asks for {amount * fleet.workers:g} {name} in all; the cluster has {total:g}"
        if lacking:
            raise StepError(f"the gang of {self.spec.display} ({fleet.workers} workers) {lacking}")
        strategy = "PACK" if fleet.nodes > 1 else "STRICT_PACK"
        if not self._fits_one_node(bundle):
            strategy = "PACK"
        group = placement_group(
            [bundle] * fleet.workers, strategy=strategy, name=f"{self.spec.display}-{uuid.uuid4().hex}"
        )
        ray.get(group.ready())
        return group

    def _fits_one_node(self, bundle: dict[str, float]) -> bool:
        wanted = {name: amount * self.spec.fleet.workers for name, amount in bundle.items()}
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        return any(all(node.get(name, 0.0) >= amount for name, amount in wanted.items()) for node in nodes)

    def _start(self, group: PlacementGroup) -> None:
        fleet = self.spec.fleet
        for rank in range(fleet.workers):
            strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank)
            options = {"num_cpus": fleet.cpus_per_worker, "num_gpus": fleet.gpus_per_worker}
            self.actors.append(_Rank.options(scheduling_strategy=strategy, **options).remote())
        try:
            places = ray.get([actor.address.remote() for actor in self.actors])
        except BaseException as error:
            raise StepFailed(ray_failure(error, f"a rank of {self.spec.display}")) from None
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
            stream = actor.run.remote(environment, self.spec, folder, self.entry, self.payload)
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
                raise StepFailed(self._blame(value))
            elif kind == "log" and value:
                logger.info("log of rank %d:\n%s", rank, value)
            elif kind == "ended" and rank not in outcomes:
                raise StepFailed(
                    Failure(
                        FailureClass.preempted, "WorkerLost", f"rank {rank} of {self.spec.display} went away", "", ""
                    )
                )
        return [outcomes[rank] for rank in range(len(self.actors))]

    def _blame(self, first: Failure) -> Failure:
        """The lost rank behind a rank's error, if one shows up: a broken collective is the effect, not the cause."""
        deadline = time.monotonic() + BLAME_SECONDS
        if first.kind is not FailureClass.error or first.expected:
            return first
        while (left := deadline - time.monotonic()) > 0:
            try:
                _, kind, value = self.messages.get(timeout=left)
            except queue.Empty:
                break
            if kind == "failed" and value.kind is FailureClass.preempted:
                lost: Failure = value
                return lost
        return first
