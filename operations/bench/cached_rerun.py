"""The cached rerun: how long a run takes that has nothing to do, as a whole process.

    python operations/bench/cached_rerun.py --scale smoke --prefix /tmp/bench-prefix --repeats 7
    python operations/bench/cached_rerun.py --emulator s3

The first run fills the prefix and is not measured. Then the same command is timed, wall and CPU, interleaved with its
peers so that a busy minute meets all of them:

- `floor`: this interpreter starting and ending (`python -c pass`): what no Python program can beat;
- `doit`: an up-to-date doit project with as many tasks as the prefix has records, each with one file that doit checks.
  Needs an interpreter that has doit (`--doit-python`), in an environment of its own.

One JSON line for each peer and unit; the figure is the median, and `spread` the fastest and slowest.

With `--emulator` the prefix lies on a server of this machine that speaks S3 or GCS (those of the tests: moto, and
fake-gcs-server): the requests are real ones, but no network lies between.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

DODO = """
from pathlib import Path

DOIT_CONFIG = {"verbosity": 0}

def write(path):
    Path(path).write_text("{}")


def task_step():
    for number in range(COUNT):
        target = f"out/{number}.json"
        yield {
            "name": str(number),
            "file_dep": [f"out/{number - 1}.json"] if number else [],
            "targets": [target],
            "actions": [(write, [target])],
            "uptodate": [True],
        }
"""


@dataclass(frozen=True)
class Timing:
    """Seconds of one process: by the clock, and of all its CPUs (its children included)."""

    wall: float
    cpu: float


@dataclass(frozen=True)
class Subject:
    """A command to time, and where it runs."""

    name: str
    command: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)


def timed(subject: Subject) -> Timing:
    """Run the command once, quietly; raises RuntimeError with its output when it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    environment = {**os.environ, **subject.environment}
    done = subprocess.run(
        subject.command, cwd=subject.folder, env=environment, capture_output=True, text=True, check=False
    )
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"{subject.name} exited {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return Timing(wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def measure(subjects: Sequence[Subject], repeats: int) -> dict[str, list[Timing]]:
    """Time every subject `repeats` times, in rounds."""
    timings: dict[str, list[Timing]] = {subject.name: [] for subject in subjects}
    for _ in range(repeats):
        for subject in subjects:
            timings[subject.name].append(timed(subject))
    return timings


def comparison(ours: Sequence[Timing], peer: Sequence[Timing], peer_name: str, what: str) -> list[dict[str, object]]:
    """The lines of one peer: wall, then CPU."""
    lines: list[dict[str, object]] = []
    figures = (
        ("s wall", [timing.wall for timing in ours], [timing.wall for timing in peer]),
        ("s cpu", [timing.cpu for timing in ours], [timing.cpu for timing in peer]),
    )
    for unit, own, other in figures:
        median, peer_median = statistics.median(own), statistics.median(other)
        lines.append(
            {
                "name": "cached_rerun",
                "ours": round(median, 4),
                "peer": round(peer_median, 4),
                "ratio": round(peer_median / median, 4),
                "unit": unit,
                "input": what,
                "peer_name": peer_name,
                "repeats": len(own),
                "spread": [round(min(own), 4), round(max(own), 4)],
                "peer_spread": [round(min(other), 4), round(max(other), 4)],
            }
        )
    return lines


def doit_project(folder: Path, tasks: int, python: str) -> Subject:
    """A doit project of `tasks` finished tasks in a chain."""
    (folder / "out").mkdir(parents=True)
    (folder / "dodo.py").write_text(DODO.replace("COUNT", str(tasks)))
    subject = Subject("doit", (python, "-m", "doit", "--reporter", "executed-only"), folder)
    timed(subject)
    return subject


def listing(prefix: str | Path) -> dict[str, tuple[int, int]]:
    """Every object below the prefix with its size and, on disk, its time: a cached rerun must not change it."""
    if "://" not in str(prefix):
        files = [path for path in Path(prefix).rglob("*") if path.is_file()]
        return {
            str(path.relative_to(prefix)): (status.st_size, status.st_mtime_ns)
            for path, status in ((path, path.stat()) for path in files)
        }
    from marin.storage import open_store

    return {info.key: (info.size, 0) for info in open_store(prefix).list()}


@contextlib.contextmanager
def emulator(kind: str | None) -> Iterator[tuple[str, Mapping[str, str]] | None]:
    """(prefix, environment of its clients) on a server of the kind, while the block lasts."""
    if kind is None:
        yield None
        return
    from tests.storage.emulators import SERVERS

    with SERVERS[kind]() as server:
        os.environ.update(server.environment)
        yield server.prefix("bench"), server.environment


def main(arguments: list[str] | None = None) -> int:
    """Fill the prefix, measure, print."""
    parser = argparse.ArgumentParser(description="time the cached rerun of the experiment")
    parser.add_argument("--scale", default="smoke")
    parser.add_argument("--prefix", help="a folder or an URL; a temporary folder when absent")
    parser.add_argument("--emulator", choices=("s3", "gcs"), help="a prefix on a server that speaks S3 or GCS")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--doit-python", help="an interpreter that has doit installed")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="marin-bench-") as scratch, emulator(options.emulator) as server:
        prefix = server[0] if server else options.prefix or str(Path(scratch) / "prefix")
        if "://" not in prefix:
            prefix = os.path.abspath(prefix)
        script = ROOT / "experiments" / "exp_535b.py"
        command = (sys.executable, str(script), "--scale", options.scale, "--prefix", prefix)
        ours = Subject("ours", command, Path(scratch), server[1] if server else {})
        timed(ours)
        timed(ours)
        records = len([key for key in listing(prefix) if key.startswith("_steps/")])
        subjects = [ours, Subject("floor", (sys.executable, "-c", "pass"), Path(scratch))]
        if options.doit_python:
            python = os.path.abspath(options.doit_python)
            subjects.append(doit_project(Path(scratch) / "doit", records, python))
        before = listing(prefix)
        timings = measure(subjects, options.repeats)
        if listing(prefix) != before:
            print("cached_rerun: the measured runs wrote into the prefix, so they were not cached", file=sys.stderr)
            return 1
        where = options.emulator or ("local" if "://" not in prefix else prefix)
        what = f"exp_535b --scale {options.scale}, {records} records, {where} prefix"
        for subject in subjects[1:]:
            for line in comparison(timings["ours"], timings[subject.name], subject.name, what):
                print(json.dumps(line))
    return 0


if __name__ == "__main__":
    sys.exit(main())
