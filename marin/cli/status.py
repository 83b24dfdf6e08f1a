"""`marin status`: what is done, at work, failed and blocked in a prefix, or what became of a run."""

from __future__ import annotations

import time
from collections.abc import Iterable

from marin.cli.ls import answering_records, removed_text
from marin.execution import layout
from marin.execution.planning.index import list_records
from marin.execution.reasons.past_runs import find_run, read_run
from marin.execution.reasons.status import (
    SUCCEEDED,
    AtWork,
    Failed,
    RunStatus,
    Status,
    StepState,
    done_by_name,
    duration,
    liveness,
    look,
    run_status,
)
from marin.execution.records import Record
from marin.execution.running.console import number
from marin.storage import Store

LISTED = 60
"""Finished steps that are shown one by one."""
ORDER = ("done", "cached", "running", "waiting", "failed", "blocked", "cancelled", "open")
IN_WORDS = {"open": "not started", "cached": "cached"}


def status(store: Store, run: str | None, everything: bool) -> int:
    """Print the state of a prefix, or of one run of it."""
    if run is not None:
        found = read_run(store, find_run(store, run))
        _print_run(store, run_status(store, found, list_records(store)), everything)
        return 0
    seen = look(store, all_failures=everything)
    _print_done(store, seen, everything)
    for work in seen.at_work:
        print(f"running  {work.display}  {at_work_text(work)}")
    for step in _of_newest_run(seen, "waiting"):
        print(f"waiting  {step.entry.display}  {step.event.text if step.event is not None else ''}")
    for failed in seen.failed:
        _print_failed(store, failed)
    if seen.older_failures:
        print(f"failed   and {seen.older_failures} steps before that (--all shows them)")
    for step in _of_newest_run(seen, "blocked"):
        print(f"blocked  {step.entry.display}  {step.event.text if step.event is not None else ''}")
    if seen.run is not None and seen.run.text != SUCCEEDED:
        print(f"run      {_run_line(seen.run)}")
    return 0


def _of_newest_run(seen: Status, state: str) -> Iterable[StepState]:
    return [step for step in seen.run.steps if step.state == state] if seen.run is not None else []


def _print_done(store: Store, seen: Status, everything: bool) -> None:
    count = len(seen.index.generations)
    if not count:
        print(f"no finished step in {store.url}")
    elif everything or count <= LISTED:
        for record in answering_records(store, seen.index):
            print(f"done     {_done_line(record)}{removed_text(record, seen.index)}")
            for remark in record.remarks:
                print(f"         ! {remark}")
    else:
        buried = done_by_name(
            step for step, generation in seen.index.generations.items() if (*step, generation) in seen.index.tombstones
        )
        for name, steps in done_by_name(seen.index.generations).items():
            gone = f", {buried[name]} with bytes removed (tombstone)" if name in buried else ""
            print(f"done     {name:<48} {steps} step{'s' if steps > 1 else ''}{gone}")


def _done_line(record: Record) -> str:
    finished, started = record.provenance["finished"], record.provenance["started"]
    return f"{record.display:<48} {moment(finished)}  {finished - started:8.1f}s  {number(record.size)}B"


def moment(seconds: float, form: str = "%Y-%m-%d %H:%M") -> str:
    """A time in this machine's zone."""
    return time.strftime(form, time.localtime(seconds))


def at_work_text(work: AtWork) -> str:
    """Who runs a step, since when, and whether it still lives."""
    alive = liveness(work.holder, work.beat)
    if alive == "its process is gone":
        alive += ": the next run takes it over"
    since = f"since {moment(work.since)} ({duration(time.time() - work.since)})"
    return f"by run {work.holder.run} on {work.holder.host}, {since}; {alive}"


def _print_failed(store: Store, failed: Failed) -> None:
    print(f"failed   {failed.display}  {failed.failure.line}")
    print(f"         traceback {store.url_of(failed.failure.place.key)}")
    if failed.log is not None:
        print(f"         log       {store.url_of(failed.log)}")


def _run_line(seen: RunStatus) -> str:
    run = seen.run
    counts = ", ".join(f"{seen.counts[state]} {IN_WORDS.get(state, state)}" for state in ORDER if seen.counts[state])
    where = f" on {seen.holder.host}" if seen.holder is not None else ""
    started = f", started {moment(seen.started)}" if seen.started is not None else ""
    return f"{run.name}{where}{started}; {seen.text}; {counts or 'no steps'}"


def _print_run(store: Store, seen: RunStatus, everything: bool) -> None:
    run = seen.run
    print(_run_line(seen))
    if run.started is not None:
        print(f"  command  {' '.join(map(str, run.started.facts['argv']))}")
    if seen.holder is not None:
        print(f"  process  {seen.holder.pid}")
    if run.finished is not None and run.started is not None:
        print(f"  took     {duration(run.finished.time - run.started.time)}")
    print(f"  lies in  {store.url_of(layout.run_folder(run.name))}")
    for step in seen.steps:
        if step.state == "cached" and not everything:
            continue
        state = IN_WORDS.get(step.state, step.state)
        seconds = f" in {step.event.facts['seconds']:.1f}s" if step.event and step.event.facts.get("seconds") else ""
        said = (step.event.text if step.event is not None else "").partition("\n")[0]
        text = said if step.state in ("waiting", "failed", "blocked", "cancelled", "running") and said else ""
        reason = text or step.entry.reason
        print(f"{state:<12} {step.entry.display}{seconds}{f'  {reason}' if reason else ''}")
        for remark in step.event.facts.get("remarks", ()) if step.event is not None else ():
            print(f"{'':<12} ! {remark}")
