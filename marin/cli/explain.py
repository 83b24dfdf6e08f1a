"""`marin explain`: why a step was made, what it differs in from the nearest earlier one, and why it is not there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from marin.cli.status import moment
from marin.execution import StepError, layout
from marin.execution.planning.index import RecordIndex, list_records
from marin.execution.reasons.causes import CAUSES, Cause, StepRecipe, recorded
from marin.execution.reasons.earlier import find_earlier, recipe_in_plan
from marin.execution.reasons.failure_history import failures_of, read_failure
from marin.execution.reasons.past_runs import PlanEntry, read_plan, read_run
from marin.execution.reasons.record_diff import codes_differ
from marin.execution.reasons.selection import (
    SHOWN,
    Unfinished,
    displays,
    find_unfinished,
    keys_meant,
    none_there,
    several,
    wanted,
)
from marin.execution.reasons.status import RunStatus, StepState, blockers, liveness, log_key, read_beat, run_status
from marin.execution.records import Record, load_record
from marin.execution.running.claims import Holder, claim_state
from marin.storage import Store

DIFFERENCES = 12
"""Differences of one step that are shown."""
SECOND = "%Y-%m-%d %H:%M:%S"


def explain(store: Store, what: str) -> int:
    """Print why a step is as it is."""
    index = list_records(store)
    keys = keys_meant(store, what, index)
    unfinished = [] if _is_exact(what, keys) else find_unfinished(store, what, index)
    if len(keys) + len(unfinished) > 1:
        names = [*displays(store, keys[:SHOWN]), *(f"{one.display} (without a record)" for one in unfinished)]
        raise several(what, names[-SHOWN:], len(keys) + len(unfinished))
    if keys:
        _explain_record(store, load_record(store, keys[0]), index)
    elif unfinished:
        _explain_unfinished(store, unfinished[0], index)
    else:
        raise none_there(store, what, index)
    return 0


def _is_exact(what: str, keys: Sequence[str]) -> bool:
    """Whether a record was named by its id, or by a generation, which only records have."""
    ask = wanted(what)
    parsed = [layout.parse_record_key(key) for key in keys]
    by_id = len(keys) == 1 and parsed[0] is not None and ask.means_id(parsed[0][0], parsed[0][1])
    return by_id or (bool(keys) and ask.generation is not None)


def line(name: str, text: str) -> None:
    """Print one thing that is known of a step."""
    print(f"  {name:<11} {text}")


def print_causes(name: str, causes: Sequence[Cause], most: int | None = DIFFERENCES) -> None:
    """Print where differences began: the step's own settings first, then those of the steps above it.

    Of the differences of one step, `most` at most.
    """
    texts = []
    for cause in causes[:CAUSES]:
        if cause.where:
            through = f", through {', '.join(reversed(cause.through))}" if cause.through else ""
            texts.append(f"upstream {cause.where}{through}")
        indent = "  " if cause.where else ""
        texts.extend(f"{indent}{text}" for text in cause.what[:most])
        if most is not None and len(cause.what) > most:
            texts.append(f"{indent}and {len(cause.what) - most} more")
    if len(causes) > CAUSES:
        texts.append("and in more steps above")
    for number, text in enumerate(texts):
        line("" if number else name, text)


# --- a step with a record ---


def _explain_record(store: Store, record: Record, index: RecordIndex) -> None:
    made = record.provenance
    plan = read_plan(store, made["run"])
    print(record.display)
    seconds = float(made["finished"]) - float(made["started"])
    line("made", f"{moment(made['finished'], SECOND)} by run {made['run']} on {made['host']}, in {seconds:.1f} s")
    reason = made.get("reason") or (plan[record.identity].reason if record.identity in plan else "")
    if "adopted" in made:
        reason = f"adopted from {made['adopted']['path']}"
    line("because", str(reason or "its run left no reason"))
    if "copied_from" in made:
        line("copied", f"from {made['copied_from']}")
    if "alias_of" in made:
        line("output", f"taken over from {made['alias_of']}, which read the same bytes")
    newest = index.generation(record.name, record.identity)
    if index.is_tombstoned(record.name, record.identity, record.generation):
        line("bytes", "removed (tombstone); a step that needs them has them made again")
    if record.generation < newest:
        line("redone", f"generation {newest} answers; this is generation {record.generation}")
    if record.generation > 1:
        _explain_redo(store, record)
    first = _first_generation(store, record)
    _print_earlier(store, recorded(store, first), record, index, plan, made["run"])


def _first_generation(store: Store, record: Record) -> Record:
    """The step as it was made first, or as it is when that record was collected."""
    try:
        return load_record(store, layout.record_key(record.name, record.identity)) if record.generation > 1 else record
    except StepError:
        return record


def _explain_redo(store: Store, record: Record) -> None:
    """What changed from the generation before."""
    line("generation", str(record.generation))
    try:
        before = load_record(store, layout.record_key(record.name, record.identity, record.generation - 1))
    except StepError as error:
        line("before", f"cannot be compared: {error}")
        return
    same = before.output_digest == record.output_digest
    line("output", f"{'equals' if same else 'differs from'} that of generation {before.generation}")
    read = {one.path: one for one in before.dependencies}
    for now in record.dependencies:
        then = read.get(now.path)
        if then is not None and then.output_digest != now.output_digest:
            line("input", f"{now.path} read another output: {now.record}{_why_redone(store, now.record)}")


def _why_redone(store: Store, key: str) -> str:
    try:
        reason = load_record(store, key).provenance.get("reason")
    except StepError as error:
        return f" ({error})"
    return f" ({reason})" if reason else ""


def _print_earlier(
    store: Store,
    step: StepRecipe,
    record: Record | None,
    index: RecordIndex,
    plan: Mapping[str, PlanEntry],
    run: str | None,
) -> None:
    earlier = find_earlier(store, step, index, plan, run)
    if earlier is None:
        line("nearest", f"none: no earlier record of {step.name}")
        return
    of = f", of {earlier.looked_at} of {earlier.records} records" if earlier.looked_at < earlier.records else ""
    line("nearest", f"{earlier.record.display}, made {moment(earlier.record.provenance['finished'])}{of}")
    if not earlier.causes:
        line("differs in", "nothing that a recipe holds")
    print_causes("differs in", earlier.causes)
    if record is not None and codes_differ(record, earlier.record):
        line("code", "differs as well, which by itself reruns nothing")


# --- a step without a record ---


def _explain_unfinished(store: Store, step: Unfinished, index: RecordIndex) -> None:
    status = run_status(store, read_run(store, step.run), index) if step.run is not None else None
    states = {one.entry.identity: one for one in status.steps} if status is not None else {}
    state = states.get(step.entry.identity) if step.entry is not None else None
    print(f"{step.display} has no record")
    claim = claim_state(store, step.name, step.short)
    if claim.holder is not None and not claim.released:
        _print_holder(store, claim.holder, claim.since)
    elif state is not None and status is not None and state.state == "blocked":
        _print_blocked(store, status, state)
    elif failures_of(store, step.name, step.short):
        _print_failure(store, step.name, step.short)
    elif state is not None and status is not None:
        _print_state(status, state)
    else:
        line("state", "not needed: what is made from it is there" if step.entry is not None else "not known")
    if step.entry is None or step.run is None:
        return
    if step.entry.reason:
        line("to run", f"in run {step.run}: {step.entry.reason}")
    plan = status.run.entries if status is not None else {}
    recipe = recipe_in_plan(store, step.entry, plan)
    if recipe is not None:
        _print_earlier(store, recipe, None, index, plan, step.run)


def _print_holder(store: Store, holder: Holder, since: float) -> None:
    line("running", f"by run {holder.run} on {holder.host} (pid {holder.pid}) since {moment(since)}")
    line("holder", liveness(holder, read_beat(store, holder.run)))


def _print_state(status: RunStatus, state: StepState) -> None:
    text = {
        "open": "its turn has not come" if not status.is_over else "its run ended before its turn",
        "waiting": state.event.text if state.event is not None else "waits for another run",
        "cancelled": "its run was ended while it ran",
    }.get(state.state, state.state)
    line("state", text)
    line("run", f"{status.run.name}: {status.text}")


def _print_blocked(store: Store, status: RunStatus, state: StepState) -> None:
    line("blocked", state.event.text if state.event is not None else "")
    for above, way in blockers(status, state.entry.identity):
        through = f", through {', '.join(way)}" if way else ""
        line("by", f"{above.entry.display}{through}")
        if above.state == "failed":
            _print_failure(store, above.entry.name, layout.short(above.entry.identity))
        else:
            line("state", "its run was ended while it ran")


def _print_failure(store: Store, name: str, short: str) -> None:
    places = failures_of(store, name, short)
    if not places:
        line("failed", "its failure is no longer there")
        return
    failure = read_failure(store, places[-1])
    line(
        "failed",
        f"{moment(failure.time)} in run {failure.place.run} on {failure.node}, attempt {failure.place.attempt}",
    )
    line("error", failure.line)
    for cause in failure.causes:
        line("caused by", cause)
    if len(places) > 1:
        line("before", f"{len(places) - 1} other failures of it, the first in run {places[0].run}")
    line("traceback", store.url_of(failure.place.key))
    log = log_key(failure.place)
    if store.exists(log):
        line("log", store.url_of(log))
