"""The cached rerun: how long a run takes that has nothing to do, as a whole process.

    python operations/bench/cached_rerun.py --scale smoke --prefix /tmp/bench-prefix --repeats 7

The first run fills the prefix and is not measured. Then the same command is timed, wall and CPU, interleaved with its
peers so that a busy minute meets all of them:

- `floor`: this interpreter starting and ending (`python -c pass`): what no Python program can beat;
- `doit`: an up-to-date doit project with as many tasks as the prefix has records, each with one file that doit checks.
  Needs an interpreter that has doit (`--doit-python`), in an environment of its own.

One JSON line for each peer and unit; the figure is the median, and `spread` the fastest and slowest.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

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


def timed(subject: Subject) -> Timing:
    """Run the command once, quietly; raises RuntimeError with its output when it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(subject.command, cwd=subject.folder, capture_output=True, text=True, check=False)
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


def listing(prefix: Path) -> dict[str, tuple[int, int]]:
    """Every file below the prefix with its size and time: a cached rerun must not change it."""
    return {
        str(path.relative_to(prefix)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in prefix.rglob("*")
        if path.is_file()
    }


def main(arguments: list[str] | None = None) -> int:
    """Fill the prefix, measure, print."""
    parser = argparse.ArgumentParser(description="time the cached rerun of the experiment")
    parser.add_argument("--scale", default="smoke")
    parser.add_argument("--prefix", type=Path, help="a local folder; a temporary one when absent")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--doit-python", help="an interpreter that has doit installed")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="marin-bench-") as scratch:
        prefix = (options.prefix or Path(scratch) / "prefix").absolute()
        script = ROOT / "experiments" / "exp_535b.py"
        ours = Subject(
            "ours", (sys.executable, str(script), "--scale", options.scale, "--prefix", str(prefix)), Path(scratch)
        )
        timed(ours)
        timed(ours)
        records = len(list((prefix / "_steps").glob("*.json")))
        subjects = [ours, Subject("floor", (sys.executable, "-c", "pass"), Path(scratch))]
        if options.doit_python:
            python = os.path.abspath(options.doit_python)
            subjects.append(doit_project(Path(scratch) / "doit", records, python))
        before = listing(prefix)
        timings = measure(subjects, options.repeats)
        if listing(prefix) != before:
            print("cached_rerun: the measured runs wrote into the prefix, so they were not cached", file=sys.stderr)
            return 1
        what = f"exp_535b --scale {options.scale}, {records} records, local prefix"
        for subject in subjects[1:]:
            for line in comparison(timings["ours"], timings[subject.name], subject.name, what):
                print(json.dumps(line))
    return 0


if __name__ == "__main__":
    sys.exit(main())
