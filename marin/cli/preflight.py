"""`marin preflight`, and the gate before a run: findings, a line each, and whether the run may start."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from functools import partial

from marin.cli.arguments import RUN_ERROR, USAGE_ERROR, fail
from marin.cli.overrides import effective
from marin.operate import Finding, Flight, passed, preflight, render
from marin.recipes import Scale, scale_named, scale_names


def run(
    scale: str,
    file: str | None,
    rest: list[str],
    flags: list[str],
    prefix: str,
    cluster: str | None,
    *,
    any_region: bool,
    json_wanted: bool,
) -> int:
    """Look, print, and return the exit code: 1 when a run must not start."""
    if scale not in scale_names():
        fail(f"--scale: {scale!r} is none of {', '.join(scale_names())}", USAGE_ERROR)
    flight = flight_of(effective(scale_named(scale), file, rest, flags), prefix, cluster, any_region=any_region)
    findings = preflight(flight)
    print(as_json(findings) if json_wanted else as_lines(findings))
    return 0 if passed(findings) else RUN_ERROR


def gate(scale: Scale, prefix: str, cluster: str | None) -> bool:
    """Whether the training of a scale may start; says on standard error what was found."""
    findings = preflight(flight_of(scale, prefix, cluster, any_region=False))
    print(as_lines(findings), file=sys.stderr)
    return passed(findings)


def flight_of(scale: Scale, prefix: str, cluster: str | None, *, any_region: bool) -> Flight:
    """What the training of a scale needs."""
    return Flight(prefix, scale.fleet, cluster, any_region, partial(needed_memory, scale))


def needed_memory(scale: Scale, device_type: str) -> tuple[int, str]:
    """Bytes of the fullest rank at its peak, and how they are made up; raises ValueError when the plan does not fit."""
    from marin.training.fit import memory_of

    memory = memory_of(scale.model, scale.training, ranks=scale.fleet.workers, device_type=device_type)
    parts = {"state": memory.resident, "gathered and summed": memory.gathered + memory.reduced}
    parts["activations"] = memory.activations.peak
    return memory.peak, ", ".join(f"{name} {size / 1e9:.1f}" for name, size in parts.items())


def as_lines(findings: list[Finding]) -> str:
    """For people: one line a finding, and the verdict."""
    verdict = "a run may start" if passed(findings) else "do not start a run"
    return f"{render(findings)}\n{verdict}"


def as_json(findings: list[Finding]) -> str:
    """As JSON."""
    lines = [{**asdict(finding), "level": finding.level.name} for finding in findings]
    return json.dumps({"passed": passed(findings), "findings": lines}, indent=1, ensure_ascii=False)
