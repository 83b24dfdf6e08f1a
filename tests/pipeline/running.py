"""Runs of the experiment in processes of their own, and looks at what they left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENT = ROOT / "experiments" / "exp_535b.py"
LIMIT_SECONDS = 240.0


def environment(code: Path = ROOT) -> dict[str, str]:
    """The environment of a user who has the code at a place and nothing else set."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MARIN_", "RAY_ADDRESS"))}
    return {**kept, "PYTHONPATH": str(code)}


def run(prefix: Path, *flags: str, code: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """The experiment at the smoke scale, to its end."""
    script = code / EXPERIMENT.relative_to(ROOT)
    command = [sys.executable, str(script), "--scale", "smoke", "--prefix", str(prefix), *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, env=environment(code))


def run_and_list_modules(*flags: str) -> tuple[str, set[str]]:
    """The output of the experiment, run by name in an interpreter of its own, and the modules that it had loaded."""
    program = (
        "import runpy, sys\n"
        f"sys.argv = ['exp', *{list(flags)!r}]\n"
        f"runpy.run_path({str(EXPERIMENT)!r}, run_name='__main__')\n"
        "print('modules', *sorted(sys.modules))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=environment()
    )
    assert result.returncode == 0, result.stderr
    output, _, modules = result.stdout.rpartition("modules ")
    return output, set(modules.split())


def start(prefix: Path, *flags: str) -> subprocess.Popen[str]:
    """The experiment at the smoke scale, still running; output goes to a file beside the prefix."""
    command = [sys.executable, str(EXPERIMENT), "--scale", "smoke", "--prefix", str(prefix), *flags]
    with open(prefix.with_suffix(".log"), "a", encoding="utf-8") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, text=True, env=environment())


def kill(process: subprocess.Popen[str]) -> None:
    """kill -9, and wait for the end."""
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=30)


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str], what: str) -> None:
    """Wait for something that a running process brings about."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert process.poll() is None, f"the run ended before {what}: {process.returncode}"
        assert time.monotonic() < deadline, f"no {what} within {LIMIT_SECONDS} s"
        time.sleep(0.05)


def listing(prefix: Path) -> dict[str, tuple[int, int]]:
    """Every object with size and time of change."""
    files = [path for path in prefix.rglob("*") if path.is_file()]
    return {str(path.relative_to(prefix)): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def records(prefix: Path) -> dict[str, dict[str, object]]:
    """Commit records by file name."""
    return {path.name: json.loads(path.read_text()) for path in sorted((prefix / "_steps").glob("*.json"))}


def record(prefix: Path, name: str) -> dict[str, object]:
    """The only record of a step name."""
    found = [body for body in records(prefix).values() if body["name"] == name]
    assert len(found) == 1, f"{len(found)} records of {name}"
    return found[0]


def events(prefix: Path) -> Iterator[dict[str, object]]:
    """Events of all runs, in order."""
    for path in sorted((prefix / "_runs").glob("*/events-*.jsonl")):
        for line in path.read_text().splitlines():
            yield json.loads(line)


def copy_without(prefix: Path, target: Path, *names: str) -> Path:
    """A copy of a prefix in which the named steps have not run."""
    shutil.copytree(prefix, target)
    for body in records(target).values():
        if body["name"] in names:
            flat = f"{str(body['name']).replace('/', '.')}-{str(body['identity'])[:10]}"
            (target / "_steps" / f"{flat}.json").unlink()
            shutil.rmtree(target / "_claims" / flat)
            shutil.rmtree((target / str(body["path"])).parent)
    shutil.rmtree(target / "_runs", ignore_errors=True)
    return target
