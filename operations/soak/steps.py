"""One small run of many steps on several ranks, with saves and evaluations: does memory stay flat?

    OMP_NUM_THREADS=1 python operations/soak/steps.py --steps 2000 --ranks 2 --folder /dev/shm

Every rank notes its resident memory, open files and threads after each step. Held: from the end of the warm-up to the
last tenth of the run, the median of resident memory grows by at most `--growth` (1%), and neither open files nor
threads get more. Prints a line for each rank and one for the verdict; exits with 1 when it does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.training.rank_pool import RankPool

WARM_UP_SHARE = 0.3
WINDOW_SHARE = 0.1
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Task:
    """What every rank does."""

    prefix: str
    steps: int
    save_every: int
    evaluations: int


@dataclass(frozen=True)
class Sample:
    """A rank after a step: resident bytes, open files, threads."""

    step: int
    resident: int
    files: int
    threads: int


def sampled_run(task: Task) -> list[Sample]:
    """One rank of the run."""
    from functools import partial

    from marin.checkpoint.config import CheckpointPolicy
    from marin.parallel.config import ParallelPlan
    from marin.training.config import ValidationGrid
    from marin.training.environment import RankEnvironment
    from marin.training.hooks import Hook
    from marin.training.job import run_identity
    from marin.training.loop import TrainingLoop
    from marin.training.process_group import process_group
    from marin.training.trainee import build_trainee
    from marin.training.validation import HeldOutText
    from marin.training.watch.build import watch_hooks
    from tests.checkpoint.holder import holder
    from tests.training.toy import COMPONENTS, LENGTH, ToySource, toy_heldout, toy_model, toy_training

    samples: list[Sample] = []

    class Sampling(Hook):
        def after_update(self, step: int) -> None:
            resident = int(Path("/proc/self/statm").read_text().split()[1]) * PAGE
            samples.append(Sample(step, resident, len(os.listdir("/proc/self/fd")), threading.active_count()))

    with process_group(RankEnvironment.read()) as ranks:
        training = toy_training(
            steps=task.steps,
            parallel=ParallelPlan(dp_shard=ranks.world_size, ep=ranks.world_size),
            validation=ValidationGrid(
                percents=tuple(100 * number / task.evaluations for number in range(1, task.evaluations)), sequences=8
            ),
            checkpoints=CheckpointPolicy(every_steps=task.save_every, permanent_every_steps=10 * task.save_every),
            log_every=max(1, task.steps // 10),
        )
        run = holder(task.prefix, workers=ranks.world_size)
        TrainingLoop(
            model=toy_model(),
            training=training,
            identity=run_identity(toy_model(), training, "soak"),
            source=ToySource(),
            components=COMPONENTS,
            heldout={"letters": HeldOutText(partial(toy_heldout, 8), tokens=8 * LENGTH + 1, text_bytes=24 * LENGTH)},
            trainee=build_trainee(toy_model(), training, ranks),
            ranks=ranks,
            run=run,
            hooks=[*watch_hooks(training, ranks, run, "soak"), Sampling()],
        ).run()
    return samples


def judged(samples: list[Sample], growth: float) -> dict[str, Any]:
    """What a rank's samples come to, and whether they hold."""
    window = max(1, round(WINDOW_SHARE * len(samples)))
    begin = round(WARM_UP_SHARE * len(samples))
    warm, last = samples[begin : begin + window], samples[-window:]
    before, after = (median(one.resident for one in part) for part in (warm, last))
    grown = after / before - 1
    files, threads = (
        [median(getattr(one, name) for one in part) for part in (warm, last)] for name in ("files", "threads")
    )
    return {
        "resident_mb": [round(before / 1e6, 2), round(after / 1e6, 2)],
        "growth": round(grown, 5),
        "files": files,
        "threads": threads,
        "held": grown <= growth and files[1] <= files[0] and threads[1] <= threads[0],
    }


def main(argv: list[str] | None = None) -> int:
    """Runs the campaign; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--save-every", type=int, default=25)
    parser.add_argument("--evaluations", type=int, default=20)
    parser.add_argument("--growth", type=float, default=0.01)
    parser.add_argument("--minutes", type=float, default=120.0, help="give up after so long")
    parser.add_argument("--folder", type=Path, default=None)
    asked = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="steps-", dir=asked.folder))
    pool = RankPool(asked.ranks, patience=60 * asked.minutes)
    started = time.monotonic()
    try:
        task = Task(str(folder / "prefix"), asked.steps, asked.save_every, asked.evaluations)
        ranks = [judged(samples, asked.growth) for samples in pool.run(sampled_run, task, asked.ranks)]
    finally:
        pool.close()
        shutil.rmtree(folder)
    for rank, found in enumerate(ranks):
        print(json.dumps({"campaign": "steps", "rank": rank, **found}))
    held = all(found["held"] for found in ranks)
    seconds = round(time.monotonic() - started, 1)
    print(
        json.dumps({"campaign": "steps", "steps": asked.steps, "ranks": asked.ranks, "seconds": seconds, "held": held})
    )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
