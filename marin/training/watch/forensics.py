"""What a process that hangs is doing: Python stacks, collectives, memory, devices; as one text for people."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from marin.execution.redaction import redact
from marin.parallel.compat import collective_flight_record

if TYPE_CHECKING:
    from marin.training.loop import TrainingLoop

KEPT_ENTRIES = 20
ENTRY_FIELDS = (
    *("profiling_name", "process_group", "collective_seq_id", "state", "retired"),
    *("input_sizes", "output_sizes", "time_created_ns", "time_discovered_completed_ns"),
)
QUERY_SECONDS = 10.0
GPU_FIGURES = "index,utilization.gpu,utilization.memory,memory.used,memory.total,power.draw,clocks.sm,temperature.gpu"


def report(facts: Mapping[str, Any], loop: TrainingLoop | None) -> str:
    """The whole report of this process, known secrets masked. A part that cannot be had says why."""
    parts = {
        "where": lambda: json.dumps({**facts, "host": socket.gethostname(), "pid": os.getpid(), "time": time.time()}),
        "python stacks": lambda: "\n".join(stacks()),
        "collectives": lambda: collectives(loop),
        "memory and processor": processor,
        "devices": devices,
    }
    sections = []
    for title, make in parts.items():
        try:
            text = make()
        except Exception as error:  # the other parts are worth having
            text = f"cannot be had: {type(error).__name__}: {error}"
        sections.append(f"=== {title} ===\n{text}\n")
    return redact("\n".join(sections))


def stacks() -> Iterator[str]:
    """One text a thread, the main thread first, each with its innermost call last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    frames = sorted(sys._current_frames().items(), key=lambda item: item[0] != main)
    for ident, frame in frames:
        if ident != threading.get_ident():
            yield f"thread {names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}"


def collectives(loop: TrainingLoop | None) -> str:
    """torch's flight record where the build keeps one, and the last exchange of expert rows that was entered."""
    lines = []
    clocks = {} if loop is None else {id(clock): clock for clock in exchange_clocks(loop)}
    for clock in clocks.values():
        state = "inside" if clock.entered > clock.left else "outside"
        lines.append(f"{state} the expert exchange: {clock.entered} entered, {clock.left} left; last: {clock.last}")
    for source, record in collective_flight_record().items():
        entries = record.get("entries", [])
        lines.append(f"flight record {source}: {len(entries)} collectives kept, of these the last {KEPT_ENTRIES}")
        lines += [json.dumps(_told(entry)) for entry in entries[-KEPT_ENTRIES:]]
    return "\n".join(lines)


def _told(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: entry.get(name) for name in ENTRY_FIELDS}


def exchange_clocks(loop: TrainingLoop) -> Iterator[Any]:
    """The clock of each layer's exchange; layers may share one."""
    for block in loop.trainee.model.blocks:
        clock = getattr(block.moe.dispatcher, "clock", None)  # type: ignore[union-attr]
        if clock is not None:
            yield clock


def processor() -> str:
    """Peak and present memory, load, and processor time of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return json.dumps(
        {
            "resident_gb": resident_bytes() / 1e9,
            "peak_resident_gb": usage.ru_maxrss * 1024 / 1e9,
            "user_seconds": usage.ru_utime,
            "system_seconds": usage.ru_stime,
            "load": os.getloadavg(),
        }
    )


def resident_bytes() -> int:
    """Memory of this process that is in RAM; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


def devices() -> str:
    """What nvidia-smi says of all devices of this machine, and torch of the memory of ours."""
    import torch

    if not torch.cuda.is_available():
        return "no CUDA device is in use"
    own = {"allocated_gb": torch.cuda.memory_allocated() / 1e9, "reserved_gb": torch.cuda.memory_reserved() / 1e9}
    # A child with a time limit: a driver that hangs may never answer.
    asked = subprocess.run(
        ["nvidia-smi", f"--query-gpu={GPU_FIGURES}", "--format=csv"],
        capture_output=True,
        text=True,
        timeout=QUERY_SECONDS,
        check=False,
    )
    return f"{json.dumps(own)}\n{asked.stdout or asked.stderr}"
