"""The plan: every step of a graph, its identity, and whether and why it will run. Writes nothing.

A dry run prints this plan and a run executes it, so the two cannot disagree. Planning trusts records: it lists them
once, and reads one only to compare a step with an upstream that was redone.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from marin.execution import layout
from marin.execution.artifact import Artifact, call_of
from marin.execution.failures import StepError
from marin.execution.identity import Recipe, dependency_identity, digest, identity_document, recipe_of
from marin.execution.records import Record, load_record
from marin.execution.step import StepCall
from marin.storage import Store


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


@dataclass(eq=False)
class PlannedStep:
    """One step of a plan. `generation` is that of the record that answers, or of the one that a run would make."""

    call: StepCall
    recipe: Recipe
    identity: str
    document: dict[str, object]
    upstream: list[PlannedStep]
    action: Action = Action.unneeded
    reason: str = ""
    generation: int = 1
    record: Record | None = None

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
    """The steps in an order in which they can run, and those that were asked for."""

    steps: list[PlannedStep]
    targets: list[PlannedStep]
    existing: dict[tuple[str, str], int] = field(default_factory=dict)

    def to_do(self) -> list[PlannedStep]:
        """Steps that a run has to look at."""
        return [step for step in self.steps if step.action in (Action.run, Action.check)]


def existing_records(store: Store) -> dict[tuple[str, str], int]:
    """(flat name, short identity) → highest generation, from one listing."""
    found: dict[tuple[str, str], int] = {}
    for info in store.list(layout.RECORDS):
        parsed = layout.parse_record_key(info.key)
        if parsed is not None:
            name, identity, generation = parsed
            found[name, identity] = max(generation, found.get((name, identity), 0))
    return found


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
        recipes[id(call)] = recipe_of(call)
        stack.append((call, True))
        upstream = [call_of(artifact) for _, artifact in recipes[id(call)].dependencies]
        stack.extend((above, False) for above in reversed(upstream) if above is not None)


def planned_steps(targets: list[Artifact]) -> tuple[list[PlannedStep], list[PlannedStep]]:
    """(all steps with their identities, the targets among them); equal recipes are one step."""
    if any(call_of(target) is None for target in targets):
        raise StepError("a target of a run is what a step function returned, not a materialised artifact")
    identities: dict[int, str] = {}
    by_identity: dict[str, PlannedStep] = {}
    for call, recipe in walk(targets):
        above = [dependency_identity(artifact, identities) for _, artifact in recipe.dependencies]
        document = identity_document(call, recipe, above)
        identity = digest(document)
        identities[id(call)] = identity
        if identity not in by_identity:
            upstream = [by_identity[one] for one in dict.fromkeys(above) if one in by_identity]
            by_identity[identity] = PlannedStep(call, recipe, identity, document, upstream)
    chosen = [by_identity[identities[id(call_of(target))]] for target in targets]
    return list(by_identity.values()), list(dict.fromkeys(chosen))


def make_plan(targets: list[Artifact], store: Store, *, only: str | None = None, force: str | None = None) -> Plan:
    """Plan a run of the targets.

    `only` restricts the targets to the steps whose name or label-name matches the regular expression (with what they
    need); `force` redoes matching steps although they have a record.
    """
    steps, chosen = planned_steps(targets)
    if only is not None:
        chosen = _matching(steps, only, "only")
    forced = set(map(id, _matching(steps, force, "force"))) if force is not None else set()
    plan = Plan(steps, chosen, existing_records(store))
    for step in steps:  # upstream first, so what a step depends on is decided before it
        _decide(step, plan, store, id(step) in forced)
    _keep_needed(plan)
    return plan


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


def _decide(step: PlannedStep, plan: Plan, store: Store, forced: bool) -> None:
    generation = plan.existing.get((layout.flat(step.name), layout.short(step.identity)), 0)
    step.generation = generation + 1
    if forced:
        step.action, step.reason = Action.run, "forced"
    elif generation == 0:
        step.action, step.reason = Action.run, "no record of this recipe"
    elif redone := [up for up in step.upstream if up.action in (Action.run, Action.check) and up.generation > 1]:
        step.action, step.reason = Action.check, f"{redone[0].display} is redone"
    elif changed := changed_upstream(step, store, generation):
        step.action, step.reason = Action.run, f"{changed} was redone and its output changed"
    else:
        step.action, step.reason, step.generation = Action.cached, "", generation


def changed_upstream(step: PlannedStep, store: Store, generation: int) -> str | None:
    """The upstream whose output is no longer the one that the step's record was made from, if any.

    Only upstreams that were redone are looked at, so an ordinary plan reads no record.
    """
    redone = [up for up in step.upstream if up.record is not None or up.generation > 1]
    if not redone:
        return None
    record = load_record(store, layout.record_key(step.name, step.identity, generation))
    made_from = {dependency.identity: dependency.output_digest for dependency in record.dependencies}
    for up in redone:
        if record_of(up, store).output_digest != made_from.get(up.identity):
            return up.display
    return None


def record_of(step: PlannedStep, store: Store) -> Record:
    """The record of a step that is done, read once."""
    if step.record is None:
        record = load_record(store, step.record_key)
        if record.identity != step.identity:
            raise StepError(
                f"{step.record_key} belongs to another recipe ({record.identity}) whose digits begin alike; "
                f"bump the version of {step.name}"
            )
        step.record = record
    return step.record


def _keep_needed(plan: Plan) -> None:
    """Steps that only lead to cached ones need not run."""
    needed: set[int] = set()
    stack = list(plan.targets)
    while stack:
        step = stack.pop()
        if id(step) in needed:
            continue
        needed.add(id(step))
        if step.action in (Action.run, Action.check):
            stack.extend(step.upstream)
    for step in plan.steps:
        if id(step) not in needed and step.action is not Action.cached:
            step.action, step.reason = Action.unneeded, ""
