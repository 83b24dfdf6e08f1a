"""A Ray cluster of several nodes on this machine, and a driver process that has joined it by its address."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from marin.execution import Artifact, Runner, RunOptions, StepError, make_plan
from marin.execution.planning.plan import record_of
from marin.storage import Store, open_store

OBJECT_STORE_BYTES = 80 << 20
PATIENCE_SECONDS = 90.0
START_ATTEMPTS = 4


class Nodes:
    """A cluster whose head takes no work, and whose other nodes have the given numbers of processors."""

    def __init__(self, processors: Sequence[int], *, fixed: bool = True) -> None:
        """`fixed`: the cluster says that no node will come."""
        from ray.cluster_utils import Cluster

        head: dict[str, Any] = {"num_cpus": 0, "include_dashboard": False}
        if fixed:
            head["resources"] = {"marin_fixed": 1}
        arguments = {**head, "object_store_memory": OBJECT_STORE_BYTES}
        self.cluster = _patiently(lambda: Cluster(True, head_node_args=arguments))
        self.workers: list[Any] = []
        for count in processors:
            self.add(count, wait=False)
        self.cluster.wait_for_nodes(PATIENCE_SECONDS)

    @property
    def address(self) -> str:
        """The head's address."""
        return str(self.cluster.address)

    @property
    def session(self) -> Path:
        """Ray's own folder, with all logs."""
        return Path(self.cluster.head_node.get_session_dir_path())

    def add(self, processors: int, environment: Mapping[str, str] | None = None, wait: bool = True) -> Any:
        """One node more, whose workers have these environment variables too."""
        # A folder of its own for the code that it is sent: nodes of one machine would unpack it over each other.
        folder = f"runtime_resources_{uuid.uuid4().hex}"
        size = {"num_cpus": processors, "object_store_memory": OBJECT_STORE_BYTES}
        with _environment(environment or {}):
            node = _patiently(lambda: self.cluster.add_node(wait, runtime_env_dir_name=folder, **size))
        self.workers.append(node)
        return node

    def kill(self, node: Any) -> None:
        """A node is gone, without a word."""
        self.cluster.remove_node(node, allow_graceful=False)
        if node in self.workers:
            self.workers.remove(node)

    def drain(self, node: Any, seconds: float) -> None:
        """Tell Ray that a node goes away so soon, as an autoscaler does for a spot machine."""
        from ray._raylet import GcsClient
        from ray.core.generated import autoscaler_pb2

        reason = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
        until = int((time.time() + seconds) * 1000)
        accepted, why = GcsClient(address=self.address).drain_node(node.node_id, reason, "asked back", until)
        assert accepted, why

    def workers_of(self, node: Any) -> list[int]:
        """The worker processes of a node."""
        import psutil

        found = []
        for info in node.all_processes["raylet"]:
            try:
                found += [child.pid for child in psutil.Process(info.process.pid).children()]
            except psutil.NoSuchProcess:
                continue
        return found

    def node_of(self, process: int) -> Any:
        """The node to which a worker process belongs: it is a child of the node's raylet."""
        parent = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        return next(
            node for node in self.workers if parent in [info.process.pid for info in node.all_processes["raylet"]]
        )

    def kill_head(self) -> None:
        """The head is gone, without a word."""
        self.kill(self.cluster.head_node)

    def shutdown(self) -> None:
        """End all nodes."""
        self.cluster.shutdown()


def _patiently(start: Callable[[], Any]) -> Any:
    """What starts; Ray gives its own processes half a minute, which a machine busy with other work can exceed."""
    for attempt in range(1, START_ATTEMPTS + 1):
        try:
            return start()
        except Exception as error:  # Ray gives this failure no class of its own
            if "timed out during startup" not in str(error) or attempt == START_ATTEMPTS:
                raise


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@dataclass(frozen=True)
class Report:
    """What a run in the driver process came to."""

    statuses: dict[str, str]
    messages: tuple[str, ...]
    digests: tuple[str, ...]
    seconds: float


_kept: list[Any] = []


def _join(address: str, environment: Mapping[str, str]) -> None:
    from marin.execution.cluster.backend import RayBackend

    class Kept(RayBackend):
        """Stays when a run ends."""

        def close(self) -> None:
            """Ends with the process."""

    os.environ.update(environment)
    _kept.append(Kept(address))


def _run(build: Callable[..., Artifact], arguments: tuple[Any, ...], store: Store) -> Report:
    started = time.monotonic()
    plan = make_plan([build(*arguments)], store)
    result = Runner(store, plan, RunOptions(retry_pause=0.1), lambda: _kept[0]).run()
    digests = [record_of(step, store).output_digest for step in plan.targets] if result.succeeded else []
    return Report(
        {progress.step.display: progress.status.name for progress in result.steps},
        tuple(progress.failure.message for progress in result.failures if progress.failure is not None),
        tuple(digests),
        time.monotonic() - started,
    )


def _reserve(processors: int) -> None:
    """Take single processors away from all work."""
    import ray
    from ray.util.placement_group import placement_group

    group = placement_group([{"CPU": 1}] * processors)
    assert ray.get(group.ready(), timeout=PATIENCE_SECONDS) is not None
    _kept.append(group)


def _give_back() -> None:
    from ray.util.placement_group import remove_placement_group

    remove_placement_group(_kept.pop())


def _examine(store: Store, compare: bool) -> str:
    """What is said of the nodes as they are."""
    from marin.execution.cluster.nodes import examine
    from marin.execution.cluster.versions import versions

    try:
        examine(versions(source=False) if compare else {}, store)
    except StepError as error:
        return str(error)
    return ""


class Joined:
    """A driver process that has joined a cluster."""

    def __init__(self, address: str, environment: Mapping[str, str]) -> None:
        self._pool = ProcessPoolExecutor(
            1, mp_context=get_context("spawn"), initializer=_join, initargs=(address, dict(environment))
        )

    def start(self, prefix: Path, build: Callable[..., Artifact], *arguments: Any) -> Future[Report]:
        """Build a graph there, and run it."""
        return self._pool.submit(_run, build, arguments, open_store(prefix))

    def run(self, prefix: Path, build: Callable[..., Artifact], *arguments: Any) -> Report:
        """Build a graph there, and run it to its end."""
        return self.start(prefix, build, *arguments).result(PATIENCE_SECONDS)

    @contextmanager
    def reserved(self, processors: int) -> Iterator[None]:
        """Leave so many processors less for work."""
        if not processors:
            yield
            return
        self._pool.submit(_reserve, processors).result(PATIENCE_SECONDS)
        try:
            yield
        finally:
            self._pool.submit(_give_back).result(PATIENCE_SECONDS)

    def examine(self, store: Store, compare: bool) -> str:
        """Look at the nodes as when the cluster is joined, also at versions if told to; returns what is wrong."""
        return self._pool.submit(_examine, store, compare).result(PATIENCE_SECONDS)

    def kill(self) -> None:
        """The driver is gone, without a word."""
        (process,) = self._pool._processes.values()
        process.kill()
        process.join()

    def shutdown(self) -> None:
        """End the process."""
        self._pool.shutdown(wait=True, cancel_futures=True)
