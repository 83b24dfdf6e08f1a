"""What every node of a cluster must have before a step runs there: the driver's versions, and sight of the prefix.

All nodes are looked at when a cluster is joined. One that an autoscaler adds later looks at itself, when its first
piece of work arrives.
"""

from __future__ import annotations

import functools
import logging
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ray
import ray.exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from marin.execution.cluster.versions import SOURCE, differences, told, versions
from marin.execution.failures import StepError
from marin.execution.running.tasks import RunSpec
from marin.storage import MissingObject, Store

ANSWER_SECONDS = 120.0
"""For a node to unpack the code, start a worker and answer."""
NAMED = 8
"""Problems that one message tells."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Standard:
    """What the driver has, and the nodes that were found to have it too. Goes with every piece of work."""

    versions: Mapping[str, str]
    looked_at: frozenset[str] = frozenset()

    def check_here(self, spec: RunSpec) -> None:
        """Raise `StepError` when this process's node has not what the driver has; cheap where it was looked at."""
        if not self.versions or this_node() in self.looked_at:
            return
        node = f"the node {socket.gethostname()}"
        found = [one for one in differences(self.versions, _versions_here(SOURCE in self.versions)) if one.decisive]
        if found:
            raise StepError(f"{told(node, found)}; {ENVIRONMENT_ADVICE}")
        if spec.store.local_path(spec.claim.key) is not None and not spec.store.exists(spec.claim.key):
            raise StepError(unseen([node], spec.store))


ENVIRONMENT_ADVICE = "give every node the same environment (infra/Dockerfile is one)"


_versions_here = functools.cache(versions)


def this_node() -> str:
    """Ray's name of the node of this process."""
    return str(ray.get_runtime_context().get_node_id())


def unseen(nodes: list[str], store: Store) -> str:
    """Why a local prefix cannot be used."""
    return (
        f"the prefix {store.url} is a folder of the driver's machine, and {', '.join(nodes)} cannot see it: "
        "use a bucket (gs://…, s3://…), or a file system that all nodes share"
    )


def _describe(source: bool, store: Store | None, probe: str) -> tuple[dict[str, str], bool]:
    """What a node has, and whether it sees the driver's probe; runs on that node."""
    try:
        return versions(source), store is None or store.read(probe) == probe.encode()
    except MissingObject:
        return versions(source), False


_description = ray.remote(num_cpus=0, max_retries=0)(_describe)


def alive_nodes() -> dict[str, str]:
    """The nodes that live, by Ray's name, as people know them."""
    return {
        node["NodeID"]: f"the node {node['NodeManagerHostname']} ({node['NodeManagerAddress']}, {node['NodeID'][:8]})"
        for node in ray.nodes()
        if node["Alive"]
    }


def examine(expected: Mapping[str, str], store: Store | None) -> Standard:
    """Look at every node: its versions against those expected, and whether it sees a local prefix.

    Raises:
        StepError: a node lacks something; names every such node, the package and both versions.
    """
    local = store if store is not None and store.local_path("x") is not None else None
    probe = f"_probe/{uuid.uuid4().hex}"
    if local is not None:
        local.create(probe, probe.encode())
    try:
        answers = _ask(SOURCE in expected, local, probe)
    finally:
        if local is not None:
            local.delete(probe)
    problems, blind = [], []
    for name, node in alive_nodes().items():
        answer = answers.get(name)
        if answer is None:
            continue
        if isinstance(answer, str):
            problems.append(f"{node} {answer}")
            continue
        there, sees = answer
        found = differences(expected, there)
        for one in found:
            if not one.decisive:
                logger.warning("%s", told(node, [one]))
        if any(one.decisive for one in found):
            problems.append(told(node, [one for one in found if one.decisive]))
        if not sees:
            blind.append(node)
    if problems:
        more = f" (and {len(problems) - NAMED} nodes more)" if len(problems) > NAMED else ""
        raise StepError(f"{'; '.join(problems[:NAMED])}{more}; {ENVIRONMENT_ADVICE}")
    if blind and local is not None:
        raise StepError(unseen(blind, local))
    return Standard(expected, frozenset(answers))


def _ask(source: bool, store: Store | None, probe: str) -> dict[str, tuple[dict[str, str], bool] | str]:
    """What each node says, or why it says nothing."""
    tasks: dict[Any, str] = {}
    for name in alive_nodes():
        place = NodeAffinitySchedulingStrategy(name, soft=False)
        task = _description.options(scheduling_strategy=place, name="marin looks at this node")
        tasks[task.remote(source, store, probe)] = name
    ready, silent = ray.wait(list(tasks), num_returns=len(tasks), timeout=ANSWER_SECONDS)
    answers: dict[str, tuple[dict[str, str], bool] | str] = {
        tasks[reference]: f"did not answer in {ANSWER_SECONDS:.0f} s" for reference in silent
    }
    for reference in ready:
        try:
            answers[tasks[reference]] = ray.get(reference)
        except ray.exceptions.RayError as error:
            answers[tasks[reference]] = f"runs nothing: {' '.join(str(error).split())[-300:]}"
    return answers
