"""From two recipes that differ down to the settings in which the difference began, through whatever lies between.

A step's recipe holds the identities of what it is made from, so one changed setting changes every recipe below it. The
cause that a person wants is the setting, in the step that has it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marin.execution import layout
from marin.execution.planning.plan import PlannedStep
from marin.execution.planning.reading import Place, RecordReader
from marin.execution.reasons.comparison import Difference, compare, short_name
from marin.execution.records import Record
from marin.storage import Store

CAUSES = 4
"""Steps in which causes lie that are named for one step."""


@dataclass(frozen=True)
class StepRecipe:
    """A step that ran or may run: its identity document, and where the records of its upstreams lie, if anywhere."""

    name: str
    label: str | None
    identity: str
    document: Mapping[str, Any]
    upstream: Mapping[str, Place]
    finished: float = 0.0

    @property
    def display(self) -> str:
        """The step as people call it."""
        return f"{self.name}-{layout.short(self.identity)}" + (f" ({self.label})" if self.label else "")


def recorded(store: Store, record: Record) -> StepRecipe:
    """The recipe in a record."""
    upstream = {one.identity: (store, one.record) for one in record.dependencies}
    finished = float(record.provenance.get("finished", 0.0))
    return StepRecipe(record.name, record.label, record.identity, record.recipe, upstream, finished)


def planned(step: PlannedStep) -> StepRecipe:
    """The recipe of a planned step. Its upstreams are planned too."""
    return StepRecipe(step.name, step.call.label, step.identity, step.document, {})


@dataclass(frozen=True)
class Cause:
    """Where a difference began: in the step `where` (empty: in the step that was asked about), and what differs there.

    `through` names the steps between, from the step that was asked about upwards.
    """

    where: str
    what: tuple[str, ...]
    through: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The cause in one line."""
        what = ", ".join(self.what[:CAUSES]) + (f" and {len(self.what) - CAUSES} more" if self.what[CAUSES:] else "")
        return f"upstream {self.where}: {what}" if self.where else what


class Recipes:
    """Recipes by identity: those that are known, and those that can be read because a known one names their record."""

    def __init__(self, reader: RecordReader) -> None:
        self.reader = reader
        self._known: dict[str, StepRecipe] = {}
        self._places: dict[str, Place] = {}
        self._differences: dict[tuple[str, str], tuple[Difference, ...]] = {}

    def add(self, recipe: StepRecipe) -> StepRecipe:
        """Take a recipe in, and where its upstreams can be read."""
        self._known.setdefault(recipe.identity, recipe)
        for identity, place in recipe.upstream.items():
            self._places.setdefault(identity, place)
        return recipe

    def get(self, identity: str) -> StepRecipe | None:
        """The recipe of an identity, if it is known."""
        return self._known.get(identity)

    def called(self, identity: str) -> str:
        """What people call the step of an identity."""
        known = self._known.get(identity)
        if known is not None:
            return known.display
        place = self._places.get(identity)
        parsed = layout.parse_record_key(place[1]) if place is not None else None
        return f"{layout.unflat(parsed[0])}-{parsed[1]}" if parsed is not None else short_name(identity)

    def role(self, identity: str) -> str:
        """The part that a step plays: its name and label."""
        known = self._known.get(identity)
        if known is not None:
            return f"{known.name} {known.label or ''}"
        return self.called(identity).rpartition("-")[0]

    def read(self, identities: Iterable[str]) -> None:
        """Read the recipes that are not known, as far as it is known where they lie and requests are left."""
        wanted = {
            identity: self._places[identity]
            for identity in identities
            if identity not in self._known and identity in self._places
        }
        self.reader.read(wanted.values())
        for identity, place in wanted.items():
            record = self.reader.get(place)
            if record is not None and record.identity == identity:
                self.add(recorded(place[0], record))

    def differences(self, old: str, new: str) -> tuple[Difference, ...]:
        """The differences of two known recipes."""
        if (old, new) not in self._differences:
            found = compare(self._known[old].document, self._known[new].document, self.role)
            self._differences[old, new] = found
        return self._differences[old, new]

    def can_follow(self, pair: tuple[str, str]) -> bool:
        """Whether one upstream in the place of another can be explained: both are known, and are one step."""
        old, new = map(self._known.get, pair)
        return old is not None and new is not None and old.name == new.name and pair[0] != pair[1]

    def follow(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Read what leads from pairs (old, new) of known recipes to where they began to differ, level by level."""
        level = [pair for pair in dict.fromkeys(pairs) if self.can_follow(pair)]
        seen = set(level)
        while level:
            below: dict[tuple[str, str], None] = {}
            for old, new in level:
                for difference in self.differences(old, new):
                    if difference.replaced is not None and difference.replaced not in seen:
                        below[difference.replaced] = None
            seen.update(below)
            self.read(identity for pair in below for identity in pair)
            level = [pair for pair in below if self.can_follow(pair)]

    def causes(
        self, old: str, new: str, otherwise: Callable[[str], Sequence[Cause] | None] = lambda identity: None
    ) -> list[Cause]:
        """Where the difference of two known recipes began, nearest first; one more than `CAUSES` when there are more.

        `otherwise` gives the causes of a new upstream whose earlier form is not known, if they are known elsewhere.
        """
        found: dict[tuple[str, tuple[str, ...]], Cause] = {}
        visited = {(old, new)}
        queue: deque[tuple[str, str, tuple[str, ...]]] = deque([(old, new, ())])
        while queue and len(found) <= CAUSES:
            was, became, way = queue.popleft()
            where = way[-1] if way else ""
            own = []
            for difference in self.differences(was, became):
                pair = difference.replaced
                others = otherwise(pair[1]) if pair is not None and not self.can_follow(pair) else None
                if others is not None and pair is not None and self._is_one_step(pair):
                    for cause in others:
                        place = cause.where or self.called(pair[1])
                        found.setdefault((place, cause.what), Cause(place, cause.what, way))
                elif pair is None or not self.can_follow(pair):
                    own.append(difference.text(self.called))
                elif pair not in visited:
                    visited.add(pair)
                    queue.append((*pair, (*way, self.called(pair[1]))))
            if own:
                found.setdefault((where, tuple(own)), Cause(where, tuple(own), way[:-1]))
        return list(found.values())

    def _is_one_step(self, pair: tuple[str, str]) -> bool:
        old, new = (self.called(identity).partition(" (")[0].rpartition("-")[0] for identity in pair)
        return old == new


def causes_text(causes: Sequence[Cause]) -> str:
    """Causes in one line."""
    return "; ".join(cause.text for cause in causes[:CAUSES]) + (" …" if len(causes) > CAUSES else "")
