"""Why a planned step will run: what makes its recipe differ from the nearest one that ran, followed to where it began.

Reads are few and shared by all steps of a plan. A step whose upstream has no record has none itself, so what is looked
for is the earlier record of the steps in which a change began; the rest follows from the graph.
"""

from __future__ import annotations

import itertools
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from marin.execution import layout
from marin.execution.code_digest import code_changed
from marin.execution.failures import StepError
from marin.execution.planning.plan import NO_RECORD, Action, Plan, PlannedStep, record_of
from marin.execution.planning.reading import AT_ONCE, Place, RecordReader
from marin.execution.reasons.causes import CAUSES, Cause, Recipes, StepRecipe, causes_text, planned, recorded
from marin.execution.reasons.past_runs import counterparts, newest_plans
from marin.storage import Store, StoreUnavailable

READS = 48
"""Records that are read for the reasons of one plan."""
CANDIDATES = 36
"""Of these, how many may be earlier records of steps of the plan; the others follow upstreams."""
SIBLINGS = 16
"""Cached steps of the plan that a step is compared with; they cost no request."""
COMPARISONS = 2_000
"""Pairs of recipes that are compared in search of the nearest."""
PLANS = 3
"""Plans of earlier runs that are read when a name has more records than can be looked at."""
NEVER = "never run here"
ANY = object()
"""Any label."""

logger = logging.getLogger(__name__)


def explain(plan: Plan, store: Store) -> None:
    """Fill in the reasons of the steps that will run because they have no record."""
    missing = [step for step in plan.steps if step.action is Action.run and step.reason == NO_RECORD]
    if plan.index.complete and not plan.index.generations:
        for step in missing:
            step.reason = NEVER
        return
    if not missing:
        return
    try:
        _Explanation(plan, store, missing).fill_in()
    except (StoreUnavailable, StepError) as error:  # a run need not wait for reasons
        logger.warning("why steps of this plan have no record could not be looked up: %s", error)


@dataclass(frozen=True)
class _Nearest:
    """The recipe that a step is compared with: a cached step of the same graph, or an earlier record.

    `in_place`: an earlier run had it where the step stands in the graph. `looked_at` of `records` earlier records of
    the name were compared; of the others nobody knows.
    """

    recipe: StepRecipe
    in_graph: bool
    in_place: bool
    looked_at: int
    records: int | None

    @property
    def text(self) -> str:
        """What the step is compared with, in words."""
        if self.in_graph:
            return f"against {self.recipe.display} of this graph"
        if self.in_place or self.looked_at == self.records:
            return f"against {self.recipe.display}"
        of = f" of {self.records}" if self.records is not None else ""
        return f"against {self.recipe.display}, the nearest of the {self.looked_at}{of} records looked at"


class _Explanation:
    """The search for the reasons of one plan."""

    def __init__(self, plan: Plan, store: Store, missing: Sequence[PlannedStep]) -> None:
        self.plan = plan
        self.store = store
        self.missing = missing
        self.missing_ids = {step.identity for step in missing}
        # a change begins in steps whose upstreams are there
        self.roots = [s for s in missing if not any(up.identity in self.missing_ids for up in s.upstream)]
        self.recipes = Recipes(RecordReader(READS))
        for step in plan.steps:
            self.recipes.add(planned(step))
        self.earlier = self._earlier_records()
        self.places: dict[str, list[Place]] = {}
        self.causes: dict[str, list[Cause]] = {}
        self._comparisons = COMPARISONS

    def fill_in(self) -> None:
        """Read, compare, follow, and set the reasons."""
        nearest = self._nearest_of_all(self._candidates())
        self.recipes.follow((near.recipe.identity, identity) for identity, near in nearest.items())
        for step in self.missing:  # upstream first
            near = nearest.get(step.identity)
            if near is not None:
                found = self.recipes.causes(near.recipe.identity, step.identity, self.causes.get)
                step.reason = f"{causes_text(found) or 'recipe differs'} ({near.text})"
            elif self.plan.index.complete and layout.flat(step.name) not in self.earlier:
                found = [Cause("", (NEVER,))]
                step.reason = NEVER
            else:
                found = self._causes_above(step)
                step.reason = causes_text(found) or NO_RECORD
            self.causes[step.identity] = found

    def _earlier_records(self) -> dict[str, list[Place]]:
        """By flat step name, the records of that name that are not of this plan."""
        wanted = {layout.flat(step.name) for step in self.missing}
        own = {(layout.flat(step.name), layout.short(step.identity)) for step in self.plan.steps}
        found: dict[str, list[Place]] = defaultdict(list)
        for (name, identity), generation in self.plan.index.generations.items():
            if name in wanted and (name, identity) not in own:
                found[name].append((self.store, layout.record_key(name, identity, generation)))
        return found

    def _candidates(self) -> dict[str, list[StepRecipe]]:
        """By flat name, earlier recipes to compare with: what earlier plans had in the place first, then any."""
        if not self.plan.index.complete or sum(map(len, self.earlier.values())) > CANDIDATES:
            self.places = self._places_in_earlier_plans()
        queues: dict[str, list[Place]] = {layout.flat(step.name): [] for step in (*self.roots, *self.missing)}
        for places in self.places.values():
            queues[_flat_name(places[0])].append(places[0])
        for name, others in self.earlier.items():
            queues[name].extend(others)
        turns = dict.fromkeys(_in_turns([list(dict.fromkeys(queue)) for queue in queues.values()]))
        chosen = list(itertools.islice(turns, CANDIDATES))
        self.recipes.reader.read(chosen)
        found: dict[str, list[StepRecipe]] = defaultdict(list)
        for place in chosen:
            record = self.recipes.reader.get(place)
            if record is not None:
                found[_flat_name(place)].append(self.recipes.add(recorded(place[0], record)))
        return found

    def _places_in_earlier_plans(self) -> dict[str, list[Place]]:
        """By identity, where the records may lie that had a step's place in earlier runs, newest first."""
        steps = [(step.name, step.call.label, step.identity) for step in self.plan.steps]
        own = {identity for _, _, identity in steps}
        plans = newest_plans(self.store, PLANS).values()
        before = [counterparts(entries.values(), steps) for entries in plans]
        found: dict[str, list[Place]] = defaultdict(list)
        for step in (*self.roots, *self.missing):
            for entry in (one[step.identity] for one in before if step.identity in one):
                generation = self.plan.index.generation(entry.name, entry.identity)
                if entry.identity not in own and (generation or not self.plan.index.complete):
                    found[step.identity].append(
                        (self.store, layout.record_key(entry.name, entry.identity, generation or 1))
                    )
        return found

    def _nearest_of_all(self, candidates: Mapping[str, list[StepRecipe]]) -> dict[str, _Nearest]:
        """What each step is compared with. Steps below others without a record have nothing where that is not sure."""
        siblings = self._siblings()
        roots = set(map(id, self.roots))
        found: dict[str, _Nearest] = {}
        for step in dict.fromkeys((*self.roots, *self.missing)):
            flat = layout.flat(step.name)
            earlier = candidates.get(flat, [])
            records = len(self.earlier.get(flat, ())) if self.plan.index.complete else None
            before = self._in_its_place(step)
            if before is not None:
                found[step.identity] = _Nearest(before, False, True, len(earlier), records)
                continue
            is_root = id(step) in roots
            if not is_root and len(earlier) != records:  # a record that happened to be read is not why the step runs
                continue
            beside = [*siblings[step.name, step.call.label], *siblings[step.name, ANY]] if is_root else []
            near = self._nearest(step, earlier, beside[:SIBLINGS])
            if near is not None:
                found[step.identity] = _Nearest(*near, False, len(earlier), records)
        return found

    def _siblings(self) -> dict[tuple[str, object], list[StepRecipe]]:
        """A few cached steps of the graph by name and label, and by name alone."""
        found: dict[tuple[str, object], list[StepRecipe]] = defaultdict(list)
        for step in self.plan.steps:
            if step.action is Action.cached:
                for key in ((step.name, step.call.label), (step.name, ANY)):
                    if len(found[key]) < SIBLINGS:
                        found[key].append(planned(step))
        return found

    def _in_its_place(self, step: PlannedStep) -> StepRecipe | None:
        """What an earlier run had in the place of a step, if it was read."""
        for place in self.places.get(step.identity, ()):
            record = self.recipes.reader.get(place)
            if record is not None:
                return recorded(place[0], record)
        return None

    def _nearest(
        self, step: PlannedStep, earlier: Sequence[StepRecipe], siblings: Sequence[StepRecipe]
    ) -> tuple[StepRecipe, bool] | None:
        """The recipe of the same label, with the fewest differences, no longer in the graph, and the newest."""
        best: tuple[tuple[bool, int, bool, float], StepRecipe, bool] | None = None
        for in_graph, group in ((False, earlier), (True, siblings)):
            for recipe in group:
                if not self._comparisons:
                    break
                self._comparisons -= 1
                count = len(self.recipes.differences(recipe.identity, step.identity))
                rank = (recipe.label != step.call.label, count, in_graph, -recipe.finished)
                if best is None or rank < best[0]:
                    best = (rank, recipe, in_graph)
        return best[1:] if best is not None else None

    def _causes_above(self, step: PlannedStep) -> list[Cause]:
        """What made the upstreams run that have no record."""
        found: dict[tuple[str, tuple[str, ...]], Cause] = {}
        for up in step.upstream:
            for cause in self.causes.get(up.identity, ()):
                above = Cause(cause.where or up.display, cause.what)
                found.setdefault((above.where, above.what), above)
        return list(found.values())[: CAUSES + 1]


def _flat_name(place: Place) -> str:
    parsed = layout.parse_record_key(place[1])
    return parsed[0] if parsed is not None else ""


def _in_turns(queues: Sequence[Sequence[Place]]) -> Iterator[Place]:
    """The first of each queue, then the second of each, and so on."""
    for at in range(max(map(len, queues), default=0)):
        for queue in queues:
            if at < len(queue):
                yield queue[at]


CODE_CHANGED = "code changed; bump its version if results differ"


def note_changed_code(plan: Plan, store: Store, *, read: bool = True) -> list[PlannedStep]:
    """Say of cached steps that their code is not what made their record, and return them.

    Reads every record, many at a time; without `read` it looks only at records that were read already, which are
    those of the targets and of what a run used.
    """
    cached = [step for step in plan.steps if step.action is Action.cached and (read or step.record is not None)]
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="marin-read") as pool:
        records = list(pool.map(lambda step: record_of(step, store), cached))
    changed = []
    for step, record in zip(cached, records, strict=True):
        if code_changed(step.call.step, record):
            step.reason = CODE_CHANGED
            changed.append(step)
    return changed
