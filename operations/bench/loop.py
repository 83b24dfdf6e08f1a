"""What a training step costs beside forward, backward and optimizer, at the laptop scale.

    OMP_NUM_THREADS=1 python operations/bench/loop.py

Two ranks train the laptop scale's model on made-up documents, watched as every run is, without saves and evaluations
between. CPU time is taken on the thread that trains, in each step and in its forward, backward and optimizer (gradient
norm and reductions included), and on the loader's threads, which read and pack. What is not of those three, counts,
routing, metrics, hooks and progress, is the rest, with the loader's time; as a share of the step it is `ours`, the
median over steps and the worse of the ranks. `peer` is the bound that it must keep. What other threads do (collectives,
the watchdog) is told as `others`. `without_balancing` leaves out the routers' biases, which are a part of the recipe.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.training.rank_pool import RankPool

BOUND = 0.02
COMPUTE = ("forward", "backward", "optimizer")
WARM_UP_STEPS = 3


@dataclass(frozen=True)
class Task:
    """What every rank does."""

    prefix: str
    steps: int


def measured_run(task: Task) -> list[dict[str, float]]:
    """CPU seconds of each step on one rank: `step`, and each phase."""
    import numpy as np

    from marin.execution import derive_seed, materialise
    from marin.recipes import scale_named
    from marin.tokens.mixture.config import MixtureConfig
    from marin.tokens.mixture.loader import Batch, MixtureLoader
    from marin.tokens.mixture.steps import build_mixture
    from marin.training.config import ValidationGrid
    from marin.training.environment import RankEnvironment
    from marin.training.job import run_identity
    from marin.training.loop import TrainingLoop
    from marin.training.process_group import process_group
    from marin.training.throughput import PhaseClock
    from marin.training.trainee import build_trainee
    from marin.training.watch.build import watch_hooks
    from tests.checkpoint.holder import holder
    from tests.tokens.building import written_shards

    steps: list[dict[str, float]] = []

    class CpuClock(PhaseClock):
        @contextmanager
        def phase(self, name: str, *, on_device: bool = False) -> Iterator[None]:
            started = time.thread_time()
            with super().phase(name, on_device=on_device):
                yield
            steps[-1][name] = steps[-1].get(name, 0.0) + time.thread_time() - started

    class Measured(TrainingLoop):
        def train_step(self) -> None:
            steps.append({})
            loaded, whole, started = loader.seconds, time.process_time(), time.thread_time()
            super().train_step()
            self.saver.poll()
            own, loaded = time.thread_time() - started, loader.seconds - loaded
            others = time.process_time() - whole - own - loaded
            steps[-1] |= {"loader": loaded, "others": others, "step": own + loaded}

    class Timed:
        """A source that counts the CPU time of whoever reads it."""

        def __init__(self, source: MixtureLoader) -> None:
            self.source = source
            self.seconds = 0.0

        def batch(self, first: int, count: int) -> Batch:
            started = time.thread_time()
            found = self.source.batch(first, count)
            self.seconds += time.thread_time() - started
            return found

    scale = scale_named("laptop")
    random = np.random.default_rng(0)
    documents = tuple(
        tuple(int(token) for token in random.integers(2, scale.model.vocab_size, int(random.integers(50, 600))))
        for _ in range(400)
    )
    with process_group(RankEnvironment.read()) as ranks:
        if ranks.rank == 0:
            shards = written_shards(documents, 100, scale.model.vocab_size, "text")
            materialise(build_mixture({"text": shards}, MixtureConfig()), prefix=task.prefix)
        ranks.largest(0)
        shards = written_shards(documents, 100, scale.model.vocab_size, "text")
        mixture = materialise(build_mixture({"text": shards}, MixtureConfig()), prefix=task.prefix)
        training = replace(
            scale.training,
            steps=task.steps,
            validation=ValidationGrid(percents=()),
            checkpoints=replace(scale.training.checkpoints, every_steps=None, rehearse=False),
        )
        run = holder(task.prefix, workers=ranks.world_size)
        seed = derive_seed(training.seed, "data order")
        source = MixtureLoader(mixture, scale.model.sequence_length, seed, training.sequences)
        loader = Timed(source)
        loop = Measured(
            model=scale.model,
            training=training,
            identity=run_identity(scale.model, training, mixture.identity),
            source=loader,
            components=source.names,
            heldout={},
            trainee=build_trainee(scale.model, training, ranks),
            ranks=ranks,
            run=run,
            hooks=watch_hooks(training, ranks, run, "bench"),
        )
        loop.clock = CpuClock(ranks.device)
        loop.run()
    return steps[WARM_UP_STEPS:]


def rest(step: dict[str, float]) -> float:
    """The share of a step that is neither forward nor backward nor optimizer."""
    return 1 - sum(step[name] for name in COMPUTE) / step["step"]


def main(argv: list[str] | None = None) -> int:
    """Prints the line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=23)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=None)
    asked = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="loop-", dir=asked.folder))
    pool = RankPool(asked.ranks, patience=1800.0)
    try:
        by_rank = pool.run(measured_run, Task(str(folder), asked.steps), asked.ranks)
    finally:
        pool.close()
        shutil.rmtree(folder)
    shares = [median(map(rest, steps)) for steps in by_rank]
    worst = by_rank[shares.index(max(shares))]
    phases = sorted({name for step in worst for name in step})
    line: dict[str, Any] = {
        "name": "loop",
        "ours": round(max(shares), 5),
        "peer": BOUND,
        "ratio": round(BOUND / max(shares), 2),
        "unit": "share of a step's CPU time",
        "input": f"laptop scale, {asked.ranks} ranks, {len(worst)} steps after {WARM_UP_STEPS}",
        "by_rank": [round(share, 5) for share in shares],
        "without_balancing": round(median(rest(step) - step["router"] / step["step"] for step in worst), 5),
        "milliseconds": {name: round(1000 * median(step.get(name, 0.0) for step in worst), 2) for name in phases},
    }
    print(json.dumps(line))
    return 0


if __name__ == "__main__":
    sys.exit(main())
