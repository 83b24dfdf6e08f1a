"""`marin watch`, `marin alerts`, `marin profile-diff`: a training run while it goes on, and what it left."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from marin.execution import StepError, layout
from marin.execution.planning.index import list_records
from marin.execution.reasons.selection import find_record
from marin.execution.reasons.status import duration
from marin.execution.records import Record, load_record
from marin.storage import MissingObject, Store
from marin.training.watch.evaluation import Change, Judge, evaluate
from marin.training.watch.folders import PROFILES
from marin.training.watch.past_state import Observed, PastState, observe, states_under
from marin.training.watch.profile_summary import ProfileSummary, difference
from marin.training.watch.rules import PACKAGED, FloorRise, Rule, read_rules

EVENTS = "events.out.tfevents.0000000000.marin"
METRICS = "metrics.jsonl"
VALIDATION = "validation.json"


def watch(store: Store, what: str, every: float | None, events: str | None) -> int:
    """Print how a run stands, once or every so many seconds; and write its curves for TensorBoard when asked to."""
    rules = read_rules()
    while True:
        state = _newest_state(store, what)
        record = _record_of(store, state)
        seen = observe(state, _window(rules))
        if record is not None:  # the last evaluation comes after the last checkpoint
            seen = replace(seen, validations=tuple(_scores(store, record)))
        print("\n".join(standing(seen, rules, time.time(), over=record is not None)), flush=True)
        if events is not None:
            print(f"curves      {_write_events(seen, Path(events))}: tensorboard --logdir {events}", flush=True)
        if every is None:
            return 0
        time.sleep(every)
        print()


def alerts(store: Store, what: str, rules_file: str | None) -> int:
    """Print every alert that the lines of a run give: of a finished step, of a run's state, or of a file."""
    rules = read_rules(Path(rules_file) if rules_file else PACKAGED)
    lines, validations = _lines_of(store, what)
    changes = evaluate(rules, lines, validations)
    for change in changes:
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(change.time))}  {change}")
    if not changes:
        print("no alert")
    return 0


def profile_diff(store: Store, before: str, after: str) -> int:
    """Print what changed between two profiles."""
    print(difference(_summary(store, before), _summary(store, after)), end="")
    return 0


def standing(seen: Observed, rules: Sequence[Rule], now: float, *, over: bool) -> list[str]:
    """The state of a run in a few lines."""
    lines = [f"run         {seen.state.folder.removesuffix('/state')}"]
    if not seen.lines:
        return [*lines, "step        none yet"]
    newest = seen.lines[-1]
    lines.append(f"step        {newest['step']}, {duration(now - newest['time'])} ago: {_figures(newest)}")
    if seen.checkpoint is None:
        lines.append("checkpoint  none yet")
    else:
        saved = seen.checkpoint.step
        moment = next((line["time"] for line in reversed(seen.lines) if line["step"] <= saved), None)
        age = f", {duration(now - moment)}" if moment is not None else ""
        lines.append(f"checkpoint  step {saved}: {newest['step'] - saved} steps{age} ago")
    if seen.validations:
        last = seen.validations[-1]
        loss = "no token" if last["loss"] is None else f"{last['loss']:.4f} nats per token"
        lines.append(f"evaluation  step {last['step']}: {loss}")
    lines += [f"alert       {change}" for change in _active(seen, rules, None if over else now)] or ["alert       none"]
    lines += [f"stall       {key}" for key in seen.stalls]
    lines += [f"numerics    {key}" for key in seen.numerics]
    return lines


def _figures(line: Mapping[str, Any]) -> str:
    shown = (
        ("loss", "loss {:.4f}"),
        ("gradient_norm", "gradient norm {:.3f}"),
        ("tokens_per_s", "{:.0f} tokens/s"),
        ("mfu", "MFU {:.1%}"),
        ("skipped_steps", "{} skipped"),
    )
    return ", ".join(form.format(line[name]) for name, form in shown if line.get(name) is not None)


def _active(seen: Observed, rules: Sequence[Rule], now: float | None) -> Iterable[Change]:
    """The alerts that hold; silence counts only up to `now`."""
    judge = Judge(rules, max(int(line["step"]) for line in seen.lines))
    for line in seen.lines:
        judge.line(line)
    for summary in seen.validations:
        judge.validation(summary)
    if now is not None:
        judge.tick(now)
    return judge.active.values()


def _window(rules: Sequence[Rule]) -> int:
    return max((rule.recent_lines + rule.trailing_lines for rule in rules if isinstance(rule, FloorRise)), default=1)


def _newest_state(store: Store, what: str) -> PastState:
    states = states_under(store, what)
    if not states:
        raise StepError(
            f"no training run has left anything below {what} in {store.url}; give the folder of a step, such as "
            "model/pretrain, or another --prefix"
        )
    return states[-1]


def _record_of(store: Store, state: PastState) -> Record | None:
    """The record of a state's step, when it is finished."""
    name, _, last = state.folder.removesuffix("/state").rpartition("/")
    step = (layout.flat(name), last[-layout.SHORT :])
    generation = list_records(store).generations.get(step)
    return load_record(store, layout.record_key(*step, generation)) if generation else None


def _scores(store: Store, record: Record) -> list[dict[str, Any]]:
    """The evaluations of a finished step."""
    keys = [file.key for file in record.files if file.name == VALIDATION]
    scores: list[dict[str, Any]] = json.loads(store.read(keys[0]))["validations"] if keys else []
    return scores


def _lines_of(store: Store, what: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    path = Path(what)
    if path.is_file():
        return _parsed(path.read_bytes()), []
    if store.size(what.strip("/")) is not None:
        return _parsed(store.read(what.strip("/"))), []
    states = states_under(store, what)
    record = _record_of(store, states[-1]) if states else find_record(store, what)
    if record is None:
        seen = observe(states[-1], 0)
        return list(seen.all_lines()), list(seen.validations)
    files = {file.name: file.key for file in record.files}
    if METRICS not in files:
        raise StepError(f"{record.display} has no {METRICS}; name a training step or a file of metrics lines")
    return _parsed(store.read(files[METRICS])), _scores(store, record)


def _parsed(data: bytes) -> list[dict[str, Any]]:
    try:
        return [json.loads(text) for text in data.decode().splitlines() if text]
    except ValueError as error:
        raise StepError(f"these are no metrics lines: {error}") from error


def _write_events(seen: Observed, folder: Path) -> Path:
    from marin.training.tensorboard import write_events

    folder.mkdir(parents=True, exist_ok=True)
    place = folder / EVENTS
    with place.open("wb") as sink:
        write_events(sink, seen.all_lines(), seen.validations)
    return place


def _summary(store: Store, what: str) -> ProfileSummary:
    """Of a local file, of a key of the prefix, or of the run below a folder that profiled last."""
    if Path(what).is_file():
        return ProfileSummary.from_bytes(Path(what).read_bytes(), what)
    try:
        return ProfileSummary.from_bytes(store.read(what.strip("/")), what)
    except (MissingObject, IsADirectoryError):
        found = [one for state in states_under(store, what) for one in state.find(f"{PROFILES}/*/summary.json")]
    if not found:
        raise StepError(
            f"{what} is no summary of a profile, and no run below it has one; profiles lie in "
            f"STEP/state/EPOCH/{PROFILES}/step-N/summary.json"
        )
    return ProfileSummary.from_bytes(store.read(found[0].key), found[0].key)
