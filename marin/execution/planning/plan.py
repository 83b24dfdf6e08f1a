"""The plan: every step of a graph, its identity, and whether and why it will run. Writes nothing.

A dry run prints this plan and a run executes it, so the two cannot disagree. Planning trusts records: it lists them
once, and reads one only to compare a step with an upstream that was redone, or when it is asked to verify.
"""

from __future__ import annotations

import contextlib
import enum
import gc
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from marin.execution import layout
from marin.execution.adopted import refuse_unadopted
from marin.execution.artifact import Artifact, call_of
from marin.execution.failures import StepError
from marin.execution.fitting import misfit_of_arguments
from marin.execution.identity import (
    Recipe,
    UnstableValue,
    dependency_identity,
    digest,
    identity_document,
    recipe_of,
)
from marin.execution.planning.index import RecordIndex, find_records
from marin.execution.records import Record, load_record
from marin.execution.step import StepCall
from marin.storage import Store

Verify = Callable[[Store, Sequence[Record]], dict[str, str]]
"""Looks at the files of records; returns what is wrong, by record key."""


class WrongPattern(StepError):
    """`only` or `force` is no regular expression, or matches no step."""


class Action(enum.Enum):
    """What a plan does with a step.

    `cached`: its record answers. `run`: it will run. `check`: it has a record, and runs again only if the output of
    an upstream that is being redone turns out different. `unneeded`: it has no record, and nothing asks for it.
    """

    cached = "cached"
    run = "will run"
    check = "will run if its input changes"
    unneeded = "not needed"


NO_RECORD = "no record of this recipe"
"""The reason of a step that was never run, here or anywhere that the plan looked."""

OPEN = (Action.run, Action.check)
"""What a run has to look at."""


@dataclass(eq=False, slots=True)
class PlannedStep:
    """One step of a plan. `generation` is that of the record that answers, or of the one that a run would make.

    `store` is set when the record lies in another prefix, which is read and never written.
    """

    call: StepCall
    recipe: Recipe
    identity: str
    document: dict[str, object]
    upstream: list[PlannedStep]
    action: Action = Action.unneeded
    reason: str = ""
    generation: int = 1
    record: Record | None = None
    store: Store | None = None

    @property
    def name(self) -> str:
        """The step's name."""
        return self.call.name

    @property
    def display(self) -> str:
        """The step as people call it."""
        return f"{self.name}-{layout.short(self.identity)}" + (f" ({self.call.label})" if self.call.label else "")

    @property
    def folder(self) -> str:
        """The step's folder in the store."""
        return layout.step_folder(self.name, self.call.label, self.identity)

    @property
    def record_key(self) -> str:
        """The key of the record of this generation."""
        return layout.record_key(self.name, self.identity, self.generation)


@dataclass
class Plan:
    """The steps in an order in which they can run, those that were asked for, and the records of the prefix."""

    steps: list[PlannedStep]
    targets: list[PlannedStep]
    index: RecordIndex

    def to_do(self) -> list[PlannedStep]:
        """Steps that a run has to look at."""
        return [step for step in self.steps if step.action in OPEN]


def walk(targets: Iterable[Artifact]) -> Iterator[tuple[StepCall, Recipe]]:
    """Every step call below the targets, upstream first, each once. Iterative: chains may be long."""
    recipes: dict[int, Recipe] = {}
    done: set[int] = set()
    stack: list[tuple[StepCall, bool]] = [(call, False) for call in (call_of(t) for t in targets) if call is not None]
    stack.reverse()
    while stack:
        call, expanded = stack.pop()
        if expanded:
            if id(call) not in done:
                done.add(id(call))
                yield call, recipes[id(call)]
            continue
        if id(call) in recipes:
            continue
        try:
            recipes[id(call)] = recipe_of(call)
        except UnstableValue as error:
            raise UnstableValue(f"{call.name}: {error}") from error
        stack.append((call, True))
        upstream = [call_of(artifact) for _, artifact in recipes[id(call)].dependencies]
        stack.extend((above, False) for above in reversed(upstream) if above is not None)


def planned_steps(targets: list[Artifact]) -> tuple[list[PlannedStep], list[PlannedStep]]:
    """(all steps with their identities, the targets among them); equal recipes are one step."""
    if any(call_of(target) is None for target in targets):
        raise StepError("a target of a run is what a step function returned, not a materialised artifact")
    identities: dict[int, str] = {}
    by_identity: dict[str, PlannedStep] = {}
    functions: dict[tuple[str, str], Callable[..., object]] = {}
    for call, recipe in walk(targets):
        _refuse_namesake(call, functions.setdefault((call.name, call.step.version), call.step.function))
        above = [dependency_identity(artifact, identities) for _, artifact in recipe.dependencies]
        document = identity_document(call, recipe, above)
        identity = digest(document)
        identities[id(call)] = identity
        if identity not in by_identity:
            upstream = [by_identity[one] for one in dict.fromkeys(above) if one in by_identity]
            by_identity[identity] = PlannedStep(call, recipe, identity, document, upstream)
    chosen = [by_identity[identities[id(call_of(target))]] for target in targets]
    return list(by_identity.values()), list(dict.fromkeys(chosen))


def _refuse_namesake(call: StepCall, first: Callable[..., object]) -> None:
    """Raise `StepError` when two functions share a name and version: their results would be taken for each other's."""
    own = call.step.function
    if own is not first and (own.__module__, own.__qualname__) != (first.__module__, first.__qualname__):
        raise StepError(
            f"the step {call.name!r}, version {call.step.version!r}, is two functions: "
            f"{first.__module__}:{first.__qualname__} and {own.__module__}:{own.__qualname__}; rename one of the steps"
        )


def make_plan(
    targets: list[Artifact],
    store: Store,
    *,
    only: str | None = None,
    force: str | None = None,
    verify: Verify | None = None,
    also_read: Sequence[Store] = (),
) -> Plan:
    """Plan a run of the targets.

    `only` restricts the targets to the steps whose name or label-name matches the regular expression (with what they
    need); `force` redoes matching steps although they have a record. `verify` looks at the files of every cached
    step, and what it finds damaged is redone. `also_read` are prefixes whose records answer where this one has none.
    """
    with _collector_paused():
        steps, chosen = planned_steps(targets)
        if only is not None:
            chosen = _matching(steps, only, "only")
        forced = _matching(steps, force, "force") if force is not None else []
        plan = Plan(steps, chosen, find_records(store, [(step.name, step.identity) for step in steps]))
        decisions = _Decisions(plan, store, _elsewhere(plan, also_read), {id(step): "forced" for step in forced})
        decisions.make()
        if verify is not None:
            decisions.redo |= _damage(plan, store, verify)
            decisions.every_upstream = True
            decisions.make()
        _keep_needed(plan)
    idle = [step for step in forced if step.action is Action.unneeded]
    if idle:
        raise WrongPattern(
            f"--force {force!r} matches {idle[0].display}, which nothing needs that --only {only!r} asks for; "
            "leave --only out, or let it match too"
        )
    for step in plan.to_do():
        refuse_unadopted(step.call, step.display, step.reason, store.url)
        wrong = misfit_of_arguments(step.call.arguments, step.call.step.annotations)
        if wrong is not None:
            raise StepError(f"{step.display} cannot run with its arguments: {wrong}")
    for step in plan.steps:
        if step.store is not None:
            step.reason = f"{_size(record_of(step, store).size)} in {step.store.url}"
    return plan


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """No search for circular garbage while a plan grows: there is none, and the search costs a quarter of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if gc.get_freeze_count() == 0:
            gc.freeze()  # to and fro: the plan counts as old from now on, and is not searched at the next allocation
            gc.unfreeze()
        if was_on:
            gc.enable()


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"


def _matching(steps: list[PlannedStep], pattern: str, option: str) -> list[PlannedStep]:
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise WrongPattern(f"--{option} {pattern!r} is not a regular expression: {error}") from error
    found = [step for step in steps if expression.search(step.name) or expression.search(step.display)]
    if not found:
        names = ", ".join(sorted({step.name for step in steps}))
        raise WrongPattern(f"--{option} {pattern!r} matches no step; the steps are {names}")
    return found


def _elsewhere(plan: Plan, also_read: Sequence[Store]) -> dict[int, tuple[Store, int]]:
    """(store, generation) of steps that have no record here, by the first of the other prefixes that has one."""
    found: dict[int, tuple[Store, int]] = {}
    for other in also_read:
        missing = [s for s in plan.steps if id(s) not in found and not plan.index.generation(s.name, s.identity)]
        index = find_records(other, [(step.name, step.identity) for step in missing])
        for step in missing:
            generation = index.generation(step.name, step.identity)
            if generation and not index.is_tombstoned(step.name, step.identity, generation):
                found[id(step)] = (other, generation)
    return found


@dataclass
class _Decisions:
    """What becomes of each step of a plan. `redo`: reasons to run a step whatever its record says."""

    plan: Plan
    store: Store
    elsewhere: dict[int, tuple[Store, int]]
    redo: dict[int, str]
    every_upstream: bool = False

    def make(self) -> None:
        """Decide every step, upstream first; then redo those whose bytes are gone and which the run will read."""
        while True:
            for step in self.plan.steps:
                self._decide(step)
            gone = self._tombstones_that_are_read()
            if not gone:
                return
            self.redo |= dict.fromkeys(map(id, gone), "its bytes were removed (tombstone) and a step needs them")

    def _decide(self, step: PlannedStep) -> None:
        generation = self.plan.index.generation(step.name, step.identity)
        step.action, step.reason, step.generation, step.store = Action.run, "", generation + 1, None
        if id(step) in self.redo:
            step.reason, step.record = self.redo[id(step)], None
        elif generation == 0 and id(step) in self.elsewhere:
            step.action = Action.cached
            step.store, step.generation = self.elsewhere[id(step)]
        elif generation == 0:
            step.reason = NO_RECORD
        elif redone := [up for up in step.upstream if up.action in OPEN and up.generation > 1]:
            step.action, step.reason, step.record = Action.check, f"{redone[0].display} is redone", None
        elif changed := changed_upstream(step, self.store, generation, every=self.every_upstream):
            step.reason, step.record = f"{changed} was redone and its output changed", None
        else:
            step.action, step.generation = Action.cached, generation

    def _tombstones_that_are_read(self) -> list[PlannedStep]:
        index = self.plan.index
        read = {id(up): up for step in _needed(self.plan) if step.action in OPEN for up in step.upstream}
        return [
            up
            for up in read.values()
            if up.action is Action.cached and up.store is None
            if index.is_tombstoned(up.name, up.identity, up.generation)
        ]


def _damage(plan: Plan, store: Store, verify: Verify) -> dict[int, str]:
    """What is wrong with the outputs of cached steps of this prefix, by step. A tombstone is no damage."""
    found: dict[int, str] = {}
    readable: list[tuple[PlannedStep, Record]] = []
    for step in plan.steps:
        if step.action is not Action.cached or step.store is not None:
            continue
        try:
            record = record_of(step, store)
        except StepError as error:
            found[id(step)] = str(error)
            continue
        if not plan.index.is_tombstoned(step.name, step.identity, step.generation):
            readable.append((step, record))
    wrong = verify(store, [record for _, record in readable])
    return found | {id(step): wrong[record.key] for step, record in readable if record.key in wrong}


def changed_upstream(step: PlannedStep, store: Store, generation: int, *, every: bool = False) -> str | None:
    """The upstream whose output is no longer the one that the step's record was made from, if any.

    Only upstreams that were redone are looked at, so an ordinary plan reads no record; `every` looks at all of them.
    """
    there = [up for up in step.upstream if up.action is Action.cached or up.record is not None]
    suspects = there if every else [up for up in there if up.record is not None or up.generation > 1]
    if not suspects:
        return None
    record = load_record(store, layout.record_key(step.name, step.identity, generation))
    made_from = {dependency.identity: dependency.output_digest for dependency in record.dependencies}
    for up in suspects:
        if record_of(up, store).output_digest != made_from.get(up.identity):
            return up.display
    return None


def record_of(step: PlannedStep, store: Store) -> Record:
    """The record of a step that is done, read once, from the prefix or from where the plan found it."""
    if step.record is None:
        record = load_record(step.store or store, step.record_key)
        if record.identity != step.identity:
            raise StepError(
                f"{step.record_key} belongs to another recipe ({record.identity}) whose digits begin alike; "
                f"bump the version of {step.name}"
            )
        step.record = record
    return step.record


def _needed(plan: Plan) -> list[PlannedStep]:
    """The targets and, below every step that may run, what it reads."""
    needed: dict[int, PlannedStep] = {}
    stack = list(plan.targets)
    while stack:
        step = stack.pop()
        if id(step) not in needed:
            needed[id(step)] = step
            if step.action in OPEN:
                stack.extend(step.upstream)
    return list(needed.values())


def _keep_needed(plan: Plan) -> None:
    """Steps that only lead to cached ones need not run."""
    needed = set(map(id, _needed(plan)))
    for step in plan.steps:
        if id(step) not in needed and step.action is not Action.cached:
            step.action, step.reason = Action.unneeded, ""
