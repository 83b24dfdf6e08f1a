"""`marin gc`: what no run, pin or experiment needs, and its removal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from marin.cli.arguments import RUN_ERROR, USAGE_ERROR, fail, nearest
from marin.cli.experiment_file import build_of
from marin.cli.verify import counted, status_line
from marin.execution import layout
from marin.execution.planning.index import StepKey
from marin.execution.planning.plan import planned_steps
from marin.execution.running.console import number
from marin.execution.upkeep.collect import Collection, Reason, plan_collection
from marin.execution.upkeep.roots import DAY, HOUR, Rules
from marin.execution.upkeep.sweep import Swept, sweep
from marin.recipes import scale_named, scale_names
from marin.storage import Store

SHOWN = 20
"""Lines of what could not be removed, or stays for now, that are printed."""


def gc(store: Store, experiments: Iterable[str], keep_days: float, grace_hours: float, *, delete: bool) -> int:
    """Print what would go, by step and reason; remove it when asked to. Exit code 1 when something could not go."""
    for flag, value in (("--keep-days", keep_days), ("--grace-hours", grace_hours)):
        if not value >= 0:
            fail(f"{flag} {value:g}: a number that is not negative", USAGE_ERROR)
    rules = Rules(keep=keep_days * DAY, grace=grace_hours * HOUR)
    planned: dict[StepKey, str] = {}
    for one in experiments:
        planned |= planned_by_experiment(one)
    with status_line() as line:
        line("looking at what lies there")
        collection = plan_collection(store, rules, planned)
    count, size = print_totals(collection)
    inventory = collection.inventory
    whole = f"{counted(inventory.objects, 'object')} with {number(inventory.size)}B"
    print_some("stays for now", collection.kept_back)
    if not delete or not count:
        way = "; remove it with --delete" if count else ""
        print(f"{number(count)} of {whole} would go, {number(size)}B{way}")
        return 0
    with status_line() as line:
        swept = sweep(store, collection, lambda done: line(f"{number(done.objects)} of {number(count)} objects"))
    return report(swept, whole)


def print_totals(collection: Collection) -> tuple[int, int]:
    """Print a line for each step name and reason, the largest first; returns (objects, bytes) of all."""
    totals = sorted(collection.totals().items(), key=lambda item: (-item[1][1], item[0][0]))
    if totals:
        print(f"{'bytes':>10}  {'objects':>8}  {'steps':>6}  {'what':<28} why")
    steps = steps_of(collection)
    for (name, reason), (count, size) in totals:
        shown = steps.get((name, reason), 0) or ""
        print(f"{number(size):>9}B  {number(count):>8}  {shown:>6}  {name:<28} {reason.value}")
    return sum(count for _, (count, _) in totals), sum(size for _, (_, size) in totals)


def steps_of(collection: Collection) -> dict[tuple[str, Reason], int]:
    """How many steps of a name lose something, by reason."""
    found: dict[tuple[str, Reason], int] = defaultdict(int)
    for removal in collection.removals:
        for reason in {reason for reason, _ in removal.objects()}:
            found[removal.name, reason] += 1
    return found


def report(swept: Swept, whole: str) -> int:
    """Print what was removed and what was not; returns the exit code."""
    print_some("stays for now", swept.kept_back)
    print_some("could not be removed", swept.failed)
    print(f"removed {number(swept.objects)} of {whole}, {number(swept.size)}B")
    return RUN_ERROR if swept.failed else 0


def print_some(what: str, lines: list[str]) -> None:
    """Print the first of some lines, and how many more there are."""
    for text in lines[:SHOWN]:
        print(f"{what}: {text}")
    if len(lines) > SHOWN:
        print(f"{what}: {len(lines) - SHOWN} more")


def planned_by_experiment(text: str) -> dict[StepKey, str]:
    """The steps that `FILE[:SCALE]` plans, at one scale or at all; exits with 2 when they cannot be told."""
    path, separator, scale = text.rpartition(":")
    if not separator or Path(text).is_file():
        path, scale = text, ""
    elif scale not in scale_names():
        if Path(path).is_file():
            fail(f"--experiment {text}: {scale!r} is no scale{nearest(scale, scale_names())}", USAGE_ERROR)
        path, scale = text, ""
    build = build_of(path, "--experiment")
    planned: dict[StepKey, str] = {}
    for name in [scale] if scale else scale_names():
        try:
            steps, _ = planned_steps([build(scale_named(name))])
        except Exception as error:  # whatever an experiment's own code raises
            hint = "" if scale else f"; name the scales that you use, such as --experiment {path}:{scale_names()[0]}"
            fail(f"{path} cannot be planned at the scale {name}: {error}{hint}", USAGE_ERROR)
        for step in steps:
            planned[layout.flat(step.name), layout.short(step.identity)] = f"{path} at {name}"
    return planned
