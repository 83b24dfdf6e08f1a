"""What an earlier run left on a machine: ranks without a driver, and processes on its GPUs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from itertools import pairwise

RANK_TITLES = ("ray::RankProcess",)
TRAINING_MODULE = "marin.training"
ASK_SECONDS = 20.0


def processes_left(own: frozenset[int]) -> Iterator[str]:
    """Ranks of other gangs on this machine, and programs on its GPUs, but for these processes and their relatives."""
    import psutil

    kept = own | {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    for process in psutil.process_iter(["pid", "cmdline"]):
        words = process.info["cmdline"] or []
        if process.pid not in kept and _is_rank(words):
            yield f"the rank process {process.pid} ({' '.join(words)[:60]})"
    for pid, name in gpu_programs():
        if pid not in kept:
            yield f"the program {pid} ({name}) on a GPU"


def _is_rank(words: list[str]) -> bool:
    if words and words[0].startswith(RANK_TITLES):
        return True
    return any(one == "-m" and other == TRAINING_MODULE for one, other in pairwise(words))


def gpu_programs() -> list[tuple[int, str]]:
    """Process id and name of every program on a GPU of this machine; none where there is no NVIDIA driver."""
    if shutil.which("nvidia-smi") is None:
        return []
    asked = ["nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader"]
    answer = subprocess.run(asked, capture_output=True, text=True, timeout=ASK_SECONDS, check=True).stdout
    rows = [line.partition(",") for line in answer.splitlines() if line.strip()]
    return [(int(pid), name.strip()) for pid, _, name in rows if pid.strip().isdigit()]
