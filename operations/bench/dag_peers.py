"""The peers of the DAG benchmark: an environment of their own from PyPI, and one project each for the same graphs.

Every project reads its graph from `dag_shape` and the file `case.json` beside it, gives each task the same config of
300 bytes, and leaves one small file a task, `out/<number>.json`. A task is done again when its config changed or, as
the peer sees it, its input did.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("snakemake==9.27.1", "doit==0.37.0", "luigi==3.8.1", "pytask==0.6.0")

CASE = """
import json
from dag_shape import above, config, last

with open("case.json") as file:
    CASE = json.load(file)
SHAPE, STEPS, CHANGED = CASE["shape"], CASE["steps"], CASE["changed"]
"""

DOIT = (
    CASE
    + """
from doit.tools import config_changed

DOIT_CONFIG = {"verbosity": 0, "reporter": "executed-only"}


def write(path):
    with open(path, "w") as file:
        file.write("{}")


def task_step():
    for number in range(STEPS):
        path = f"out/{number}.json"
        yield {
            "name": str(number),
            "file_dep": [f"out/{up}.json" for up in above(SHAPE, number, STEPS)],
            "targets": [path],
            "actions": [(write, [path])],
            "uptodate": [config_changed(config(number, CHANGED))],
        }
"""
)

SNAKEMAKE = (
    CASE
    + """

rule all:
    input: [f"out/{number}.json" for number in last(SHAPE, STEPS)]

rule step:
    input: lambda wildcards: [f"out/{up}.json" for up in above(SHAPE, int(wildcards.number), STEPS)]
    output: "out/{number}.json"
    params: config=lambda wildcards: json.dumps(config(int(wildcards.number), CHANGED))
    shell: "printf {{}} > {output}"
"""
)

LUIGI = (
    CASE
    + """
import luigi


class Step(luigi.Task):
    number = luigi.IntParameter()
    config = luigi.Parameter(significant=False)

    def requires(self):
        return [step(up) for up in above(SHAPE, self.number, STEPS)]

    def output(self):
        return luigi.LocalTarget(f"out/{self.number}.json")

    def run(self):
        with self.output().open("w") as file:
            file.write("{}")


def step(number):
    return Step(number=number, config=json.dumps(config(number, CHANGED)))


if __name__ == "__main__":
    ran = luigi.build([step(number) for number in last(SHAPE, STEPS)], local_scheduler=True, log_level="ERROR")
    raise SystemExit(0 if ran else 1)
"""
)

PYTASK = (
    CASE
    + """
from pathlib import Path
from typing import Annotated

from pytask import Product, PythonNode, task

HERE = Path(__file__).parent

for number in range(STEPS):

    @task(id=str(number))
    def task_step(
        config: Annotated[str, PythonNode(value=json.dumps(config(number, CHANGED)), hash=True)],
        above: list[Path] = [HERE / f"out/{up}.json" for up in above(SHAPE, number, STEPS)],
        produces: Annotated[Path, Product] = HERE / f"out/{number}.json",
    ) -> None:
        produces.write_text("{}")
"""
)


DEEP_SNAKEMAKE = "import sys; sys.setrecursionlimit(10**6); from snakemake.cli import main; main()"


@dataclass(frozen=True)
class Peer:
    """A peer: the file that holds its project, and the command that runs it in the project's folder."""

    name: str
    file: str
    text: str
    command: tuple[str, ...]


PEERS = {
    peer.name: peer
    for peer in (
        Peer("doit", "dodo.py", DOIT, ("-m", "doit")),
        Peer("snakemake", "Snakefile", SNAKEMAKE, ("-c", DEEP_SNAKEMAKE, "--cores", "1", "--quiet", "all")),
        Peer("luigi", "steps.py", LUIGI, ("steps.py",)),
        Peer("pytask", "task_steps.py", PYTASK, ("-m", "pytask", "--verbose", "0")),
    )
}


class NoPeers(Exception):
    """The peers could not be installed."""


def install(folder: Path) -> Path:
    """An interpreter with the peers, in a virtual environment that is made unless it is there."""
    python = folder / "bin" / "python"
    wanted = "\n".join(PACKAGES)
    mark = folder / "peers.txt"
    if mark.exists() and mark.read_text() == wanted:
        return python
    commands: list[list[str]] = [
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES],
    ]
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NoPeers(
                f"{' '.join(command)} exited {done.returncode}: {done.stderr.strip()[-2000:]}\n"
                "the peers come from PyPI; without a network give --no-peers"
            )
    mark.write_text(wanted)
    return python


def environment() -> dict[str, str]:
    """The environment of a peer's process: it finds `dag_shape`, and no cache of ours."""
    return {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent), "PYTHONHASHSEED": "random"}


def set_case(folder: Path, shape: str, steps: int, changed: int | None = None) -> None:
    """Say which graph the project in the folder has."""
    (folder / "case.json").write_text(json.dumps({"shape": shape, "steps": steps, "changed": changed}))


def project(peer: Peer, folder: Path, shape: str, steps: int) -> None:
    """A peer's project in an empty folder, nothing done."""
    (folder / "out").mkdir(parents=True)
    (folder / peer.file).write_text(peer.text)
    set_case(folder, shape, steps)


def pretend_done(folder: Path, steps: int) -> None:
    """Leave every task's file without running the peer, as old as the order of the graph wants it.

    For peers that look at nothing but the files when there is nothing to do, and would take minutes to make them.
    """
    for number in range(steps):
        path = folder / "out" / f"{number}.json"
        path.write_text("{}")
        os.utime(path, ns=(number * 10**6 + 10**18, number * 10**6 + 10**18))
