"""Which step of a prefix is meant: by name, name and id, label, or the start of an id, with or without a generation.

documents/clean                     when there is only one
documents/clean/web, web            by its label
documents/clean-1a2b3c4d5e, 1a2b    by its id
documents/clean-1a2b@1              an earlier generation of it
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from marin.execution import layout
from marin.execution.failures import StepError
from marin.execution.planning.index import RecordIndex, StepKey, list_records
from marin.execution.planning.record_stream import stream_records
from marin.execution.reasons.failure_history import failures_of
from marin.execution.reasons.past_runs import PlanEntry, newest_plans, read_plan
from marin.execution.records import Record, load_record
from marin.storage import Store

FEWEST_DIGITS = 4
SHOWN = 12
"""Steps that are named when several are meant."""
PLANS = 8
"""Plans of the newest runs in which a step without a record is looked for."""


@dataclass(frozen=True)
class Wanted:
    """What was asked for: a step in people's words, and a generation where one was given."""

    what: str
    generation: int | None

    def means(self, name: str, identity: str) -> bool:
        """Whether a step (flat name, short identity) is meant by its name or id."""
        return layout.flat(self.what) == name or self.means_id(name, identity)

    def means_id(self, name: str, identity: str) -> bool:
        """Whether a step (flat name, short identity) is meant by its id."""
        start, _, digits = layout.flat(self.what).rpartition("-")
        return len(digits) >= FEWEST_DIGITS and identity.startswith(digits) and start in ("", name)

    def means_label(self, name: str, label: str | None) -> bool:
        """Whether a step (plain name, label) is meant by its label."""
        return label is not None and self.what in (label, f"{name}/{label}")


def wanted(text: str) -> Wanted:
    """Read what was asked for, also a step as a list prints it, with its label in brackets."""
    what, _, generation = text.partition(" (")[0].strip().partition("@")
    if generation and not re.fullmatch(r"[1-9][0-9]*", generation):
        raise StepError(f"{text!r}: what follows @ is a generation, a number from 1")
    return Wanted(what.strip("/"), int(generation) if generation else None)


def keys_meant(store: Store, text: str, index: RecordIndex) -> list[str]:
    """The key of the record of each step that is meant: the newest, or that of the generation that was asked for."""
    ask = wanted(text)
    steps = [step for step in index.generations if ask.means(*step)] or _labelled(store, ask, index)
    return [_key(step, ask, index) for step in sorted(steps)]


def _key(step: StepKey, ask: Wanted, index: RecordIndex) -> str:
    newest = index.generations[step]
    if ask.generation is not None and ask.generation > newest:
        raise StepError(
            f"{layout.unflat(step[0])}-{step[1]} has {newest} generation(s), so there is no {ask.generation}"
        )
    return layout.record_key(*step, ask.generation or newest)


def _labelled(store: Store, ask: Wanted, index: RecordIndex) -> list[StepKey]:
    """Steps that are meant by their label, which only their records tell. Those of a name that was given come first."""
    name = layout.flat(ask.what.rpartition("/")[0])
    of_name = [step for step in index.generations if step[0] == name]
    for steps in (of_name, [step for step in index.generations if step[0] != name]):
        keys = [layout.record_key(*step, index.generations[step]) for step in steps]
        found = [
            (layout.flat(record.name), layout.short(record.identity))
            for _, record in stream_records(store, keys)
            if isinstance(record, Record) and ask.means_label(record.name, record.label)
        ]
        if found:
            return found
    return []


def find_record(store: Store, text: str) -> Record:
    """The record of the one step that is meant; `StepError` when it is none or many."""
    index = list_records(store)
    keys = keys_meant(store, text, index)
    if len(keys) == 1:
        return load_record(store, keys[0])
    if not keys:
        raise none_there(store, text, index)
    raise several(text, displays(store, keys[:SHOWN]), len(keys))


def displays(store: Store, keys: Iterable[str]) -> list[str]:
    """The steps of record keys as people call them; a damaged record by its key."""
    names = []
    for key, record in stream_records(store, keys):
        if isinstance(record, Record):
            names.append(record.display if record.label else f"{record.display} (no label)")
        else:
            names.append(f"{key} (damaged)")
    return names


def none_there(store: Store, text: str, index: RecordIndex) -> StepError:
    """The error for a step that is not there."""
    names = ", ".join(sorted({layout.unflat(name) for name, _ in index.generations})) or "none"
    return StepError(f"{store.url} has no step {text!r}; steps there: {names}")


def several(text: str, names: Sequence[str], count: int) -> StepError:
    """The error for words that mean several steps, some of which are named."""
    more = f" and {count - len(names)} more" if count > len(names) else ""
    return StepError(f"{text!r} is {count} steps: {', '.join(names)}{more}")


# --- steps without a record ---


@dataclass(frozen=True)
class Unfinished:
    """A step without a record: one that failed, is claimed, or stood in the plan of a run.

    `run` is the newest run that is known to have planned or held it, `entry` the step in that run's plan.
    """

    name: str
    short: str
    run: str | None
    entry: PlanEntry | None

    @property
    def display(self) -> str:
        """The step as people call it."""
        return self.entry.display if self.entry is not None else f"{self.name}-{self.short}"


def find_unfinished(store: Store, text: str, index: RecordIndex) -> list[Unfinished]:
    """The steps that are meant and have no record: of the newest plans, then of failures and claims."""
    ask = wanted(text)
    found: dict[StepKey, Unfinished] = {}
    for run, plan in newest_plans(store, PLANS).items():
        for entry in plan.values():
            step = layout.flat(entry.name), layout.short(entry.identity)
            if step not in index.generations and (ask.means(*step) or ask.means_label(entry.name, entry.label)):
                found.setdefault(step, Unfinished(entry.name, step[1], run, entry))
    for step in _named_folders(store):
        if step not in index.generations and step not in found and ask.means(*step):
            last = _last_run_of(store, step)
            entries = read_plan(store, last).values() if last is not None else ()
            known = next((one for one in entries if layout.short(one.identity) == step[1]), None)
            found[step] = Unfinished(layout.unflat(step[0]), step[1], last, known)
    return list(found.values())


def _named_folders(store: Store) -> Iterator[StepKey]:
    for folder in (layout.FAILED, layout.CLAIMS):
        for name in store.folders(folder):
            flat, _, short = name.rpartition("-")
            yield flat, short


def _last_run_of(store: Store, step: StepKey) -> str | None:
    """The run in which a step failed last, or that claimed it last."""
    failures = failures_of(store, *step)
    if failures:
        return failures[-1].run
    claims = [info.key for info in store.list(layout.claim_folder(*step)) if info.key.endswith(".json")]
    return str(json.loads(store.read(claims[-1]))["run"]) if claims else None
