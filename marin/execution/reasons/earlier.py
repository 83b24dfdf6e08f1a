"""The record that a step is best compared with: the nearest of its name that was made before it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from marin.execution import layout
from marin.execution.planning.index import RecordIndex
from marin.execution.planning.plan import Action
from marin.execution.planning.reading import Place, RecordReader
from marin.execution.reasons.causes import Cause, Recipes, StepRecipe, recorded
from marin.execution.reasons.past_runs import PlanEntry, counterparts, newest_plans
from marin.execution.records import Record
from marin.storage import Store

READS = 320
"""Records that are read to explain one step."""
CANDIDATES = 256
"""Of these, how many may be earlier records of its name."""
PLANS = 6
"""Plans of earlier runs that are looked at when there are more records than that."""


@dataclass(frozen=True)
class Earlier:
    """The nearest earlier record of a step, where the difference began, and how many of all records were compared."""

    record: Record
    causes: tuple[Cause, ...]
    looked_at: int
    records: int


def recipe_in_plan(store: Store, entry: PlanEntry, plan: Mapping[str, PlanEntry]) -> StepRecipe | None:
    """The recipe of a step that a run planned to make, or None when the plan does not hold it."""
    if entry.recipe is None:
        return None
    above = [plan[identity] for identity in entry.upstream if identity in plan]
    upstream: dict[str, Place] = {
        up.identity: (store, layout.record_key(up.name, up.identity, up.generation))
        for up in above
        if up.action == Action.cached.value
    }
    return StepRecipe(entry.name, entry.label, entry.identity, entry.recipe, upstream, float("inf"))


def find_earlier(
    store: Store, step: StepRecipe, index: RecordIndex, plan: Mapping[str, PlanEntry], run: str | None
) -> Earlier | None:
    """The nearest record that was first made before the step.

    Of the same label, with the fewest differences, not of the same graph, the newest: in this order. `plan` is that of
    the run `run` in which the step was made or was to be made. Steps of it without a record are known by their recipes
    there.
    """
    recipes = Recipes(RecordReader(READS))
    recipes.add(step)
    for entry in plan.values():
        recipe = recipe_in_plan(store, entry, plan)
        if recipe is not None:
            recipes.add(recipe)
    others = _others(store, step, index)
    chosen = _likely(store, step, index, plan, run, others) if len(others) > CANDIDATES else others
    records = _read(recipes.reader, index, chosen[:CANDIDATES])
    best: tuple[tuple[bool, int, bool, float], Record] | None = None
    for record in records:
        earlier = recipes.add(recorded(store, record))
        if earlier.finished >= step.finished:
            continue
        count = len(recipes.differences(earlier.identity, step.identity))
        rank = (earlier.label != step.label, count, earlier.identity in plan, -earlier.finished)
        if best is None or rank < best[0]:
            best = (rank, record)
    if best is None:
        return None
    return Earlier(best[1], causes_between(recipes, best[1].identity, step.identity), len(records), len(others))


def _read(reader: RecordReader, index: RecordIndex, places: Sequence[Place]) -> list[Record]:
    """The first record of each step, which tells when it was first made; a later one where that was collected."""
    reader.read(places)
    later = []
    for store, key in places:
        parsed = layout.parse_record_key(key)
        newest = index.generations.get(parsed[:2], 1) if parsed is not None else 1
        if reader.get((store, key)) is None and parsed is not None and newest > 1:
            later.append((store, layout.record_key(parsed[0], parsed[1], newest)))
    reader.read(later)
    return [record for place in (*places, *later) if (record := reader.get(place)) is not None]


def causes_between(recipes: Recipes, old: str, new: str) -> tuple[Cause, ...]:
    """Where the difference of two known recipes began, read upwards as far as requests are left."""
    recipes.follow([(old, new)])
    return tuple(recipes.causes(old, new))


def _others(store: Store, step: StepRecipe, index: RecordIndex) -> list[Place]:
    flat, own = layout.flat(step.name), layout.short(step.identity)
    return [
        (store, layout.record_key(name, short)) for name, short in index.generations if name == flat and short != own
    ]


def _likely(
    store: Store,
    step: StepRecipe,
    index: RecordIndex,
    plan: Mapping[str, PlanEntry],
    run: str | None,
    others: Iterable[Place],
) -> list[Place]:
    """All other records of the name, those first that had the step's place in the plans of earlier runs."""
    steps = [(entry.name, entry.label, entry.identity) for entry in plan.values()]
    likely: dict[str, Place] = {}
    for entries in newest_plans(store, PLANS, before=run).values():
        entry = counterparts(entries.values(), steps).get(step.identity)
        if entry is not None and index.generation(entry.name, entry.identity):
            key = layout.record_key(entry.name, entry.identity)
            likely.setdefault(key, (store, key))
    return list((likely | {place[1]: place for place in others}).values())
