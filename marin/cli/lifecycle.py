"""`marin pin`, `unpin`, `pins`, `tombstone`, `adopt` and `copy`, and the choice among the commands of this kind."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from marin.cli.arguments import RUN_ERROR, USAGE_ERROR, fail
from marin.cli.verify import StatusLine, counted, status_line
from marin.execution import Artifact, StepError, layout
from marin.execution.running.console import number
from marin.storage import Store, open_store

GB = 1e9


def run(name: str, arguments: Mapping[str, Any]) -> int:
    """Run one of these commands; returns the exit code."""
    store = open_store(arguments["prefix"])
    if name == "verify":
        from marin.cli.verify import verify

        if arguments["upstream"] and arguments["step"] is None:
            fail("--upstream goes with a step; without one all steps are checked", USAGE_ERROR)
        return verify(store, arguments["step"], sizes=arguments["sizes"], upstream=arguments["upstream"])
    if name == "gc":
        from marin.cli.collection import gc

        days, hours = arguments["keep_days"], arguments["grace_hours"]
        return gc(store, arguments["experiment"], days, hours, delete=arguments["delete"])
    if name == "pin":
        return pin(store, arguments["what"], arguments["note"])
    if name == "unpin":
        return unpin(store, arguments["what"])
    if name == "pins":
        return pins(store)
    if name == "tombstone":
        return tombstone(store, arguments["step"], arguments["note"], yes=arguments["yes"])
    if name == "adopt":
        return adopt(store, arguments)
    return copy(store, arguments["step"], arguments["source"], arguments["budget"])


# --- pins ---


def pin(store: Store, what: str, note: str) -> int:
    """Keep a run or a step."""
    from marin.execution.reasons.past_runs import find_run, run_names
    from marin.execution.reasons.selection import find_record
    from marin.execution.upkeep.pins import add_pin, pin_of_run, pin_of_step, planned_by

    if any(name == what or name.endswith(f"-{what}") for name in run_names(store)):
        run = find_run(store, what)
        made = pin_of_run(run, note)
        kept = f"{counted(len(planned_by(store, run)), 'step')} of its plan"
    else:
        record = find_record(store, what)
        made = pin_of_step((layout.flat(record.name), layout.short(record.identity)), note)
        kept = "with all that it was made from"
    is_new = add_pin(store, made)
    print(f"{made.display} is pinned, {kept}" if is_new else f"{made.display} was pinned already")
    return 0


def unpin(store: Store, what: str) -> int:
    """Take a pin off."""
    from marin.execution.upkeep.pins import all_pins, remove_pin

    there = all_pins(store)
    asked = what.partition(" (")[0]
    hits = [one for one in there if asked in (one.argument, one.identity, layout.unflat(one.name), one.display)]
    if not hits:
        known = ", ".join(one.argument for one in there) or "none"
        raise StepError(f"{what!r} is not pinned; pinned there: {known}")
    if len(hits) > 1:
        raise StepError(f"{what!r} is {len(hits)} pins: {', '.join(one.argument for one in hits)}")
    remove_pin(store, hits[0])
    print(f"{hits[0].display} is not pinned any more")
    return 0


def pins(store: Store) -> int:
    """Print what is pinned."""
    from marin.execution.upkeep.pins import all_pins

    there = all_pins(store)
    for one in there:
        when = time.strftime("%Y-%m-%d", time.localtime(one.time))
        print(f"{one.display:<44} {when}  {one.host}{f'  {one.note}' if one.note else ''}")
    if not there:
        print(f"nothing is pinned in {store.url}")
    return 0


# --- tombstones ---


def tombstone(store: Store, what: str, note: str, *, yes: bool) -> int:
    """Remove the files of a step and keep its record; without `yes` only say what would go."""
    from marin.execution.reasons.selection import find_record
    from marin.execution.upkeep.tombstones import bury, plan_tombstone

    burial = plan_tombstone(store, find_record(store, what))
    display = burial.record.display
    if burial.is_begun and not burial.objects:
        print(f"the bytes of {display} were removed already (tombstone)")
        return 0
    consumers = ", ".join(burial.consumers) or "none"
    print(f"{display}: {counted(len(burial.objects), 'object')}, {number(burial.size)}B; the record stays")
    if burial.shared:
        print(f"  {number(burial.shared)}B more stay, since other records list them")
    print(f"  steps made from it, which stay valid: {consumers}")
    if not yes:
        print("nothing was removed; remove it with --yes")
        return 0
    failed = bury(store, burial, note)
    for text in failed:
        print(f"could not be removed: {text}")
    if failed:
        print(f"run the same command again to remove the rest ({counted(len(failed), 'object')})")
        return RUN_ERROR
    print(f"removed {number(burial.size)}B; a run whose steps need them makes them again")
    return 0


# --- bringing in ---


def adopt(store: Store, arguments: Mapping[str, Any]) -> int:
    """Register files that exist as a finished step."""
    from marin.execution.step import NAME
    from marin.execution.upkeep import adoption

    if not NAME.fullmatch(arguments["name"]):
        fail(f"--name {arguments['name']!r}: lower-case path parts like documents/mine", USAGE_ERROR)
    if not arguments["version"].strip():
        fail("--version is empty; it says which content the name stands for, such as 2026-11", USAGE_ERROR)
    result = read_result(arguments["result"]) if arguments["result"] is not None else None
    wanted = adoption.Adoption(arguments["name"], arguments["version"], artifact_class(arguments["type"]), result)
    wanted.check()
    store.check_writable()
    found = adoption.find_files(store, arguments["path"])
    print(f"{counted(len(found.files), 'file')}, {number(found.size)}B")
    with status_line() as line:
        record, is_new = adoption.adopt(store, found, wanted, _telling(line, found.size))
    where = "its files stay where they are" if found.inside is not None else f"its files were copied into {store.url}"
    print(f"{record.display} {f'is adopted: {where}' if is_new else 'was adopted already'}; in a graph:")
    kind = wanted.kind.__name__
    print(f'  adopted("{record.name}", version="{record.version}", kind={kind})')
    return 0


def artifact_class(name: str) -> type[Artifact]:
    """The artifact class of `module:Class`; exits with 2 when there is none."""
    from marin.execution.codec import find_class

    sys.path.insert(0, os.getcwd())  # where a script of the caller finds its modules
    example = "marin.data.documents.artifacts:Documents"
    try:
        found = find_class(name)
    except (ImportError, AttributeError, ValueError, StepError) as error:
        fail(f"--type {name}: {error}; it is MODULE:CLASS such as {example}", USAGE_ERROR)
    if not issubclass(found, Artifact) or found is Artifact:
        fail(f"--type {name} is no class of artifacts", USAGE_ERROR)
    return found


def read_result(text: str) -> Any:
    """The JSON of `--result`, given as it is or as @FILE; exits with 2 when it is none."""
    try:
        return json.loads(Path(text[1:]).read_text(encoding="utf-8") if text.startswith("@") else text)
    except OSError as error:
        fail(f"--result {text}: {error.strerror}", USAGE_ERROR)
    except ValueError as error:
        fail(f"--result is not JSON: {error}", USAGE_ERROR)


def copy(store: Store, what: str, url: str, budget: float) -> int:
    """Bring a finished step from another prefix here, unless it is more than the budget (GB)."""
    from marin.execution.reasons.selection import find_record
    from marin.execution.upkeep.copying import carry_out_copy, plan_copy

    source = open_store(url)
    if source.url == store.url:
        fail(f"--from {url} is the prefix itself", USAGE_ERROR)
    record = find_record(source, what)
    plan = plan_copy(source, store, record)
    if not plan.steps:
        print(f"{record.display} is in {store.url} already")
        return 0
    print(
        f"{', '.join(step.record.display for step in plan.steps)}: {counted(plan.files, 'file')}, {number(plan.size)}B"
    )
    if plan.size > budget * GB:
        fail(
            f"{plan.size / GB:.3g} GB is more than --budget {budget:g}; nothing was copied. Give a larger --budget, or "
            f"let runs read it where it lies: --also-read {source.url}",
            RUN_ERROR,
        )
    store.check_writable()
    with status_line() as line:
        made = carry_out_copy(plan, _telling(line, plan.size))
    print(f"copied from {source.url}: {', '.join(one.display for one in made)}")
    return 0


def _telling(line: StatusLine, total: int) -> Callable[[int], None]:
    """Says of bytes that threads bring in how many of all are there."""
    done = 0
    lock = threading.Lock()

    def progress(size: int) -> None:
        nonlocal done
        with lock:
            done += size
            line(f"{number(done)}B of {number(total)}B")

    return progress
