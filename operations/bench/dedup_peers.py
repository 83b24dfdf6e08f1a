"""The sides of the dedup benchmark as processes: ours, datatrove under this interpreter, and others from PyPI.

The others get an environment of the benchmark's own, which is kept, so that a second benchmark finds it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PACKAGES = {"rensa": ("rensa==0.5.0",), "text-dedup": ("text-dedup==0.4.0",)}


class NoPeer(Exception):
    """A peer could not be installed, or failed; the message says which and why."""


@dataclass(frozen=True)
class Side:
    """A process of the benchmark: its name, and the command without the input and the folder for its files."""

    name: str
    command: tuple[str, ...]


@dataclass(frozen=True)
class Figures:
    """What a side printed: CPU seconds, peak memory in MB, and what else it has to say."""

    cpu: float
    peak_mb: float
    more: Mapping[str, Any]


def ours(work: str) -> Side:
    """Our side, doing one of the works of `dedup_ours.py`."""
    return Side(f"ours ({work})", (sys.executable, str(HERE / "dedup_ours.py"), work))


def datatrove(work: str = "datatrove") -> Side:
    """datatrove, which this interpreter has."""
    return Side(work, (sys.executable, str(HERE / "dedup_sides.py"), work))


def peer(name: str, folder: Path) -> Side:
    """A peer from PyPI in its environment under the folder.

    Raises:
        NoPeer: it could not be installed.
    """
    place = folder / name
    python, mark, wanted = place / "bin" / "python", place / "installed.txt", "\n".join(PACKAGES[name])
    if not (mark.exists() and mark.read_text() == wanted):
        commands = [
            [sys.executable, "-m", "venv", "--clear", str(place)],
            [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES[name]],
        ]
        for command in commands:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise NoPeer(f"{' '.join(command)} exited {done.returncode}: {done.stderr.strip()[-500:]}")
        mark.write_text(wanted)
    return Side(name, (str(python), str(HERE / "dedup_sides.py"), name))


def run(side: Side, given: str, folder: Path, *, keep: bool = False) -> Figures:
    """Run a side on an input, with a folder for its files, which is emptied first unless it is kept.

    Raises:
        NoPeer: it failed.
    """
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    # One thread each: libraries that start as many as there are cores would be measured for what they wait.
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
    environment = {**os.environ, **threads, "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(
        [*side.command, given, str(folder)], capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode:
        raise NoPeer(f"{side.name} exited {done.returncode}: {done.stderr.strip()[-500:]}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return Figures(figures.pop("cpu"), figures.pop("peak_mb"), figures)


def race(sides: Mapping[str, Side | str], given: str, folder: Path, rounds: int) -> dict[str, Figures | str]:
    """The turn of each side that took the least CPU seconds, turns interleaved; of one that failed, why.

    A side that is a string could not be installed, for this reason.
    """
    best: dict[str, Figures | str] = {name: side for name, side in sides.items() if isinstance(side, str)}
    for _ in range(rounds):
        for name, side in sides.items():
            known = best.get(name)
            if isinstance(side, str) or isinstance(known, str):
                continue
            try:
                found = run(side, given, folder / name)
            except NoPeer as error:
                best[name] = str(error)
                continue
            if known is None or found.cpu < known.cpu:
                best[name] = found
    shutil.rmtree(folder, ignore_errors=True)
    return best


def installed(name: str, folder: Path, make: Callable[[str, Path], Side] = peer) -> Side | str:
    """A peer, or why there is none."""
    try:
        return make(name, folder)
    except NoPeer as error:
        return str(error)
