"""Why a step has no record: what makes its recipe differ from the nearest one that ran."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from marin.execution import layout
from marin.execution.code_digest import code_digest
from marin.execution.failures import StepError
from marin.execution.plan import Action, Plan, PlannedStep, record_of
from marin.execution.records import Record, load_record
from marin.storage import Store

NEAREST = 32
ABSENT = "absent"


def leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """(path, value) of every leaf of a JSON value."""
    if isinstance(value, dict) and value and set(value) != {"$dependency"}:
        for key in sorted(value):
            yield from leaves(value[key], f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}[{index}]")
    else:
        yield path, value


def differences(old: dict[str, Any], new: dict[str, Any], names: dict[str, str]) -> list[str]:
    """The places where two identity documents differ, as text; upstreams are named through `names`."""
    found = []
    if old["version"] != new["version"]:
        found.append(f"version {old['version']!r} → {new['version']!r}")
    before, after = dict(leaves(old["config"], "")), dict(leaves(new["config"], ""))
    for path in sorted({**before, **after}):
        one, other = before.get(path, ABSENT), after.get(path, ABSENT)
        if one != other and not _is_reference(one) and not _is_reference(other):
            found.append(f"{path} {one!r} → {other!r}")
    old_above, new_above = dict(old["dependencies"]), dict(new["dependencies"])
    for path in sorted({**old_above, **new_above}):
        if old_above.get(path) != new_above.get(path):
            found.append(f"upstream {names.get(new_above.get(path, ''), path)}")
    return found


def _is_reference(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"$dependency"}


def named(step: PlannedStep) -> str:
    """A step's name with its label, if it has one."""
    return f"{step.name} ({step.call.label})" if step.call.label else step.name


def nearest_record(step: PlannedStep, plan: Plan, store: Store) -> tuple[Record, list[str]] | None:
    """The earlier record of the same step name with the fewest differences, and those differences."""
    flat, own = layout.flat(step.name), layout.short(step.identity)
    names = {other.identity: named(other) for other in plan.steps}
    candidates = [
        (identity, generation)
        for (name, identity), generation in plan.existing.items()
        if name == flat and identity != own
    ]
    best: tuple[tuple[int, float], Record, list[str]] | None = None
    for identity, generation in candidates[-NEAREST:]:
        try:
            record = load_record(store, layout.record_key(step.name, identity, generation))
        except StepError:  # damaged, and only one of those that might have explained something
            continue
        found = differences(record.recipe, step.document, names)
        rank = (len(found) + (0 if record.label == step.call.label else 100), -float(record.provenance["finished"]))
        if best is None or rank < best[0]:
            best = (rank, record, found)
    return (best[1], best[2]) if best is not None else None


def note_changed_code(plan: Plan, store: Store) -> None:
    """Say of cached steps whose code is no longer the one that made their record. Reads every record."""
    for step in plan.steps:
        if step.action is Action.cached:
            now, then = code_digest(step.call.step.function), record_of(step, store).code_digest
            if now != then and now.partition(":")[0] == then.partition(":")[0]:
                step.reason = "code changed; bump its version if results differ"


def explain(plan: Plan, store: Store) -> None:
    """Fill in the reasons of the steps that will run because they have no record."""
    for step in plan.steps:
        if step.action is not Action.run or step.generation > 1:
            continue
        nearest = nearest_record(step, plan, store)
        if nearest is None:
            step.reason = "never run here"
            continue
        record, found = nearest
        step.reason = (
            f"{'; '.join(found[:4]) or 'recipe differs'}{' …' if len(found) > 4 else ''} (against {record.display})"
        )
