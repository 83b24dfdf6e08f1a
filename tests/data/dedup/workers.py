"""Steps whose shards are done by several workers at once, in an order that is shuffled."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from marin.data.documents.artifacts import Attributes
from marin.execution import Runner, RunOptions, make_plan, materialise
from marin.execution.running.context import run_shard
from marin.execution.running.inline import InlineBackend, ignore_progress
from marin.execution.running.scratch import scratch_folder
from marin.execution.running.tasks import RunSpec, ShardOutcome, ShardTask
from marin.storage import open_store


class Workers(InlineBackend):
    """So many workers, each with a thread of its own."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count
        self._draw = random.Random(count)

    def map(self, spec: RunSpec, tasks: Sequence[ShardTask]) -> Iterator[tuple[int, ShardOutcome]]:
        def done(task: ShardTask) -> tuple[int, ShardOutcome]:
            with scratch_folder() as scratch:
                return task.index, run_shard(spec, task, scratch, ignore_progress)

        shuffled = self._draw.sample(tasks, len(tasks))
        with ThreadPoolExecutor(self._count) as pool:
            yield from pool.map(done, shuffled)


def made_by(workers: int, target: Attributes, prefix: Path) -> Attributes:
    """Run a graph with so many workers."""
    store = open_store(str(prefix))
    result = Runner(store, make_plan([target], store), RunOptions(max_concurrent=1), lambda: Workers(workers)).run()
    assert result.succeeded, [progress.failure for progress in result.failures]
    found: Attributes = materialise(target, prefix=str(prefix))
    return found
