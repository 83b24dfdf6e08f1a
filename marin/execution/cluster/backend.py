"""The back end on Ray: a step is a task, its shards are tasks of that task, its gang is a group of actors.

Ray holds no truth: when the driver or the cluster dies, running the script again goes on from the store.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
# Without this, whatever is asked of Ray after its end joins the next cluster that runs on this machine.
os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
# Ray aborts a process that does not reach the cluster's head for a minute; HeadWatch ends the run before, with a word.
os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "120")

import ray

from marin.execution.cluster.failures import ray_failure
from marin.execution.cluster.gang import run_gang
from marin.execution.cluster.gang_places import gang_prefix, remove_gangs
from marin.execution.cluster.gang_rank import NAMESPACE, Stop
from marin.execution.cluster.head_watch import Endpoint, HeadWatch
from marin.execution.cluster.nodes import Standard, examine
from marin.execution.cluster.resources import demand_of, demand_text, missing_resources, nodes_with, options_of
from marin.execution.cluster.shard_schedule import ShardPolicy
from marin.execution.cluster.shards import ShardMap
from marin.execution.cluster.start import join, kept_signal_handlers, start_embedded
from marin.execution.cluster.streams import Message, messages_of
from marin.execution.cluster.versions import versions
from marin.execution.failures import ClusterLost, FailureClass, StepError
from marin.execution.running.claims import Claim
from marin.execution.running.tasks import RankOutcome, Report, RunSpec, ShardOutcome, ShardTask
from marin.execution.running.worker import Failure, Outcome, StepTask, execute, failure_of
from marin.execution.secrets import SecretValues, store_credentials
from marin.storage import Store

R = TypeVar("R")

ASK_SECONDS = 0.5
STOP_LOOK_SECONDS = 0.1
CLOSE_SECONDS = 20.0
"""For Ray to let go of a cluster whose head is gone; the process ends all the same."""

logger = logging.getLogger(__name__)


def _step_messages(task: StepTask, secrets: SecretValues, standard: Standard, policy: ShardPolicy) -> Iterator[Message]:
    """A step's task: its progress, then its outcome."""

    def work(send: Callable[[Message], None]) -> None:
        try:
            standard.check_here(task.spec)
        except Exception as error:
            send(("done", Outcome(None, (), (), failure_of(error), "")))
            return
        full = replace(task, spec=replace(task.spec, secrets=secrets))
        send(("done", execute(full, lambda progress: send(("progress", progress)), RayFanout(standard, policy))))

    yield from messages_of(work)


_step = ray.remote(max_retries=0)(_step_messages)


class RayBackend:
    """Steps as Ray tasks, on an embedded Ray of this machine or on a cluster that runs already."""

    def __init__(
        self,
        address: str | None = None,
        *,
        cpus: float = 2,
        store: Store | None = None,
        shards: ShardPolicy = ShardPolicy(),
    ) -> None:
        """`address` joins a cluster; without it Ray is started here with at least `cpus` processors to hand out.

        A process that uses Ray already keeps the Ray it has, and keeps it afterwards. Of a cluster that is joined,
        every node must have this process's versions, and see the `store` if that is a local folder.

        Raises:
            StepError: Ray does not start, the cluster cannot be joined, or a node lacks something.
        """
        self._shards = shards
        self._running: dict[Claim, Any] = {}
        self._gangs: dict[Claim, RunSpec] = {}
        self._lock = threading.Lock()
        self._lost = ""
        self._standard = Standard({})
        self._credentials = SecretValues()  # of the store; workers of an embedded Ray have this process's environment
        self._watch: HeadWatch | None = None
        embedded = address in (None, "local")
        self._joined = embedded and ray.is_initialized()
        if self._joined:
            return
        with kept_signal_handlers():
            if address is None or embedded:
                start_embedded(cpus)
            else:
                self._join(address, store)
        self._watch = HeadWatch(endpoints("the Ray of this run" if embedded else "the cluster's head"), self._lose)
        self._watch.start()

    def _join(self, address: str, store: Store | None) -> None:
        self._credentials = store_credentials(os.environ)
        prefix = store.local_path("_") if store is not None else None
        shipment = join(address, [prefix.parent] if prefix is not None else [])
        try:
            # Where code was sent, every node has this process's own.
            self._standard = examine(versions(source=shipment is None), store)
        except BaseException:
            ray.shutdown()
            raise

    def run(self, task: StepTask, report: Report) -> Outcome:
        spec = task.spec
        try:
            return self._run(task, report)
        except ClusterLost as error:
            return Outcome(None, (), (), Failure(FailureClass.cancelled, "ClusterLost", str(error), "", "", True), "")
        except BaseException as error:
            return Outcome(None, (), (), ray_failure(error, spec.display), "")

    def _run(self, task: StepTask, report: Report) -> Outcome:
        spec = task.spec
        gpus = 0.0 if spec.fans_out else spec.fleet.gpus_per_worker
        demand = demand_of(0.0 if spec.fans_out else task.cpus, task.memory_gb, gpus)
        lacking = self._asked(lambda: missing_resources(demand))
        if lacking:
            raise StepError(f"{spec.display} {lacking}")
        if not self._asked(lambda: nodes_with(demand)):
            report({"done": 0, "total": None, "unit": f"nodes with {demand_text(demand)} yet", "figures": {}})
        stream = self._asked(lambda: self._start(task, options_of(demand, spec.display)))
        with self._lock:
            self._running[spec.claim] = stream
            if spec.fans_out:
                self._gangs[spec.claim] = spec
        try:
            self.check()
            for reference in stream:
                kind, value = ray.get(reference)
                if kind == "done":
                    outcome: Outcome = value
                    return outcome
                report(value)
            raise StepError(f"{spec.display} ended without an outcome")
        finally:
            with self._lock:
                self._running.pop(spec.claim, None)
                self._gangs.pop(spec.claim, None)
            if spec.fans_out:
                self._give_back_places(spec)

    def _give_back_places(self, spec: RunSpec) -> None:
        try:
            self._asked(lambda: remove_gangs(spec.run, spec.claim))
        except Exception as error:  # the step's outcome stands all the same
            logger.warning("the places of %s on the cluster could not be given back: %s", spec.display, error)

    def _start(self, task: StepTask, options: dict[str, Any]) -> Any:
        # Apart from the secrets: what is large goes through Ray's object store, which may spill to disk.
        bare = replace(task, spec=replace(task.spec, secrets=SecretValues()))
        secrets = self._credentials.merged(task.spec.secrets)
        secrets.check_size(task.spec.display)
        return _step.options(**options).remote(bare, secrets, self._standard, self._shards)

    def _asked(self, question: Callable[[], R]) -> R:
        """The answer to a question that Ray's head must answer; Ray itself blocks for as long as the head is silent.

        Raises:
            ClusterLost: the cluster is gone.
        """
        answers: queue.SimpleQueue[tuple[R | None, BaseException | None]] = queue.SimpleQueue()

        def ask() -> None:
            try:
                answers.put((question(), None))
            except BaseException as error:
                answers.put((None, error))

        threading.Thread(target=ask, name="marin-ask", daemon=True).start()
        while True:
            self.check()
            try:
                answer, error = answers.get(timeout=ASK_SECONDS)
            except queue.Empty:
                continue
            if error is not None:
                raise error
            return cast(R, answer)

    def abort(self, claim: Claim) -> None:
        """End the worker of the step that runs under this claim, and with it all shards and ranks that it started."""
        with self._lock:
            stream = self._running.get(claim)
        if stream is not None:
            _cancel(stream)

    def stop(self, reason: str) -> None:
        with self._lock:
            gangs = dict(self._gangs)
        asked = {claim: spec.fleet.stop_seconds for claim, spec in gangs.items() if self._ask_to_end(spec, reason)}
        deadline = time.monotonic() + max(asked.values(), default=0.0)
        while time.monotonic() < deadline and not self._lost:
            with self._lock:
                if not asked.keys() & self._gangs.keys():
                    return
            time.sleep(STOP_LOOK_SECONDS)

    def _ask_to_end(self, spec: RunSpec, reason: str) -> int:
        """How many ranks of a step were asked to save and to end for good."""
        prefix = gang_prefix(spec.run, spec.claim)
        try:
            named = self._asked(lambda: ray.util.list_named_actors(all_namespaces=True))
            names = [one["name"] for one in named if one["name"].startswith(prefix) and one["namespace"] == NAMESPACE]
            for name in names:
                with contextlib.suppress(ValueError):  # it ended just now
                    ray.get_actor(name, namespace=NAMESPACE).stop.remote(Stop(reason, final=True))
        except Exception as error:  # the run ends all the same
            logger.warning("the ranks of %s could not be asked to save: %s", spec.display, error)
            return 0
        return len(names)

    def cancel(self) -> None:
        with self._lock:
            streams = list(self._running.values())
        for stream in streams:
            _cancel(stream)

    def check(self) -> None:
        if self._lost:
            raise ClusterLost(self._lost)

    def close(self) -> None:
        if self._watch is not None:
            self._watch.stop()
        if self._joined:
            return
        if not self._lost:
            ray.shutdown()
            return
        # Ray talks to the lost head for a while before it gives up.
        closing = threading.Thread(target=ray.shutdown, name="marin-ray-shutdown", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)

    def _lose(self, message: str) -> None:
        """The cluster is gone: end what waits for it. Its workers take that order from this process itself."""
        again = "start the cluster, and run" if self._standard.versions else "run"
        self._lost = f"{message}; what is finished is in the store: {again} the same command again to go on"
        self.cancel()


def endpoints(head: str) -> list[Endpoint]:
    """What must listen as long as this process can use Ray: the head, which is called so, and this machine's node."""
    context = ray.get_runtime_context()
    host, _, port = context.gcs_address.rpartition(":")
    found = [Endpoint(head, host.strip("[]"), int(port))]
    for node in ray.nodes():
        if node["NodeID"] == context.get_node_id():
            found.append(Endpoint("the Ray of this machine", node["NodeManagerAddress"], node["NodeManagerPort"]))
    return found


def _cancel(stream: Any) -> None:
    with contextlib.suppress(Exception):
        ray.cancel(stream, force=True, recursive=True)


class RayFanout:
    """Shards and gangs of a step, started from the step's own task."""

    def __init__(self, standard: Standard, policy: ShardPolicy) -> None:
        self._standard = standard
        self._policy = policy

    def map(self, spec: RunSpec, tasks: Sequence[ShardTask]) -> Iterator[tuple[int, ShardOutcome]]:
        yield from ShardMap(spec, tasks, self._standard, self._policy).outcomes()

    def gang(
        self, spec: RunSpec, entry: Callable[[Any], Any], payload: Any, report: Report, sizes: Sequence[int] = ()
    ) -> list[RankOutcome]:
        return run_gang(spec, entry, payload, report, self._standard, sizes)
