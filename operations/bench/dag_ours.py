"""Our side of the DAG benchmark: one process that plans and runs a graph of inline steps, as an experiment would.

    python operations/bench/dag_ours.py lattice 10000 /tmp/prefix [--changed 9999] [--files]

Prints one JSON line: what the plan had to do, and the requests that the store would have got. A listing counts as many
pages as object stores make of it. The run's own folder and the self-test of the store are counted apart.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import dag_shape

from marin.execution import Artifact, Runner, RunOptions, current_run, make_plan, runtime, step
from marin.execution.running.inline import InlineBackend
from marin.storage import CountedStore, ObjectInfo, Store, open_store

PAGE = 1000
APART = ("_runs/", "_probe/")


@dataclass(frozen=True)
class Rule:
    """A nested part of the config."""

    name: str
    length: int
    ratio: float
    keep: bool


@dataclass(frozen=True)
class Config:
    """A config as a step of a data pipeline has it."""

    number: int
    threshold: float
    languages: tuple[str, ...]
    rule: Rule
    seed: int
    source: str
    suffix: str
    comment: str
    files: bool = runtime(False)


@dataclass(frozen=True, kw_only=True)
class Node(Artifact):
    """What a step of the benchmark makes."""

    number: int


@step("bench/node", version="1", inline=True)
def node(config: Config, above: tuple[Node, ...]) -> Node:
    """Take part in a graph; leaves a small file when the config says so."""
    if config.files:
        current_run().write_bytes("out.json", b"{}")
    return Node(number=config.number)


def graph(shape: str, steps: int, changed: int | None, files: bool) -> list[Artifact]:
    """The targets of a graph. Every step has a config object of its own."""
    nodes: list[Node] = []
    for number in range(steps):
        values: dict[str, Any] = dag_shape.config(number, changed)
        rule = Rule(**values.pop("rule"))
        config = Config(**{**values, "languages": tuple(values["languages"])}, rule=rule, files=files)
        nodes.append(node(config, tuple(nodes[up] for up in dag_shape.above(shape, number, steps))))
    return [nodes[number] for number in dag_shape.last(shape, steps)]


class TalliedStore(CountedStore):
    """A store that counts the requests for a run's own objects apart from all others.

    A listing has pages of 1,000 objects, as those of S3 and GCS have.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.apart: Counter[str] = Counter()

    def counter_of(self, key: str) -> Counter[str]:
        return self.apart if f"{key}/".startswith(APART) else self.requests

    def pages(self, prefix: str = "") -> Iterator[list[ObjectInfo]]:
        found = self.store.list(prefix)
        for start in range(0, max(len(found), 1), PAGE):
            self.counter_of(prefix)["LIST"] += 1
            yield found[start : start + PAGE]


def main(arguments: list[str] | None = None) -> int:
    """Plan the graph and run what it has to do."""
    parser = argparse.ArgumentParser(description="plan and run a graph of inline steps")
    parser.add_argument("shape", choices=dag_shape.SHAPES)
    parser.add_argument("steps", type=int)
    parser.add_argument("prefix")
    parser.add_argument("--changed", type=int, help="the step whose config differs")
    parser.add_argument("--files", action="store_true", help="each step leaves a file, too")
    request = parser.parse_args(arguments)
    store = TalliedStore(open_store(request.prefix))
    plan = make_plan(graph(request.shape, request.steps, request.changed, request.files), store)
    to_do = len(plan.to_do())
    if to_do:
        result = Runner(store, plan, RunOptions(), InlineBackend).run()
        if not result.succeeded:
            print(f"the run {result.run} failed", file=sys.stderr)
            return 1
    counts = {"requests": dict(store.requests), "run_requests": dict(store.apart)}
    print(json.dumps({"steps": len(plan.steps), "to_do": to_do, **counts}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
