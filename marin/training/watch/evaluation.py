"""Which alerts a run's lines give: a pure function of rules, lines and times.

Every rule is a small machine that takes one line at a time and keeps only what its window needs, so that a run of any
length costs a constant time a line. An alert is told once when its condition begins to hold and once when it clears.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marin.training.watch.rules import (
    Changed,
    FloorRise,
    Limit,
    MostOf,
    NoProgress,
    Often,
    Rule,
    Silence,
    Worse,
)

ABSENT = object()
FEWEST_LINES = 3
"""Lines that a window over time must hold before most of it can be judged."""


@dataclass(frozen=True)
class Change:
    """An alert that began (`fired`) or ended."""

    rule: Rule
    fired: bool
    step: int
    time: float
    value: Any
    """What the rule judged, as it was then."""

    def __str__(self) -> str:
        if not self.fired:
            return f"alert {self.rule.name} cleared at step {self.step}"
        said = f"{self.value:.4g}" if isinstance(self.value, float) else str(self.value)
        return f"alert {self.rule.name} ({self.rule.severity}) at step {self.step}: {self.rule.when}; it is {said}"


def evaluate(
    rules: Sequence[Rule],
    lines: Iterable[Mapping[str, Any]],
    validations: Iterable[Mapping[str, Any]] = (),
    steps: int | None = None,
    now: float | None = None,
) -> list[Change]:
    """Every change that the metrics lines and evaluations of a run gave, in order of time.

    `steps` is the length of the run, by default the last step of the lines. With `now`, the time since the last line
    counts as silence too; without, the run is taken to have ended with it.
    """
    kept = [*lines]
    judge = Judge(rules, steps if steps is not None else max((int(line["step"]) for line in kept), default=0))
    scores = deque(sorted(validations, key=lambda one: (one["step"], one.get("time", 0.0))))
    changes: list[Change] = []
    for line in kept:
        while scores and scores[0]["step"] < line["step"]:
            changes += judge.validation(scores.popleft())
        moment = float(line.get("time", 0.0))
        changes += judge.tick(moment)
        changes += judge.line(line)
    for score in scores:
        changes += judge.validation(score)
    if now is not None:
        changes += judge.tick(now)
    return changes


class Judge:
    """Takes lines, evaluations and moments in the order in which they happen; says what changed."""

    def __init__(self, rules: Sequence[Rule], steps: int) -> None:
        self.rules = tuple(rules)
        self.active: dict[str, Change] = {}
        self._steps = steps
        self._step = 0
        self._time = 0.0
        self._sampled: float | None = None
        self._sampled_apart = False
        self._progressed: float | None = None
        self._scores: dict[str, float] = {}
        self._of_line = [(rule, machine) for rule in rules if (machine := _machine(rule, steps)) is not None]

    def begin(self, now: float) -> None:
        """A process starts at `now`: silence counts from here on, and whatever came before is history."""
        self._sampled = self._progressed = self._time = now

    def line(self, line: Mapping[str, Any], *, silently: bool = False) -> list[Change]:
        """A step's line; `silently` to fill the windows with what an earlier process judged, and told, already."""
        self._step, self._time = int(line["step"]), float(line.get("time", self._time))
        self._progressed = self._time
        if not self._sampled_apart:
            self._sampled = self._time
        changes = self._time_rules(self._time, starting=False)
        for rule, machine in self._of_line:
            holds, value = machine(line)
            changes += self._settle(rule, holds, value)
        if silently:
            return []
        return changes

    def validation(self, summary: Mapping[str, Any]) -> list[Change]:
        """An evaluation's summary."""
        self._progressed = max(self._progressed or 0.0, float(summary.get("time", self._time)))
        changes: list[Change] = []
        for rule in self.rules:
            if isinstance(rule, Worse):
                changes += self._worse(rule, summary)
        return changes

    def tick(self, now: float, *, starting: bool = False, sampled: float | None = None) -> list[Change]:
        """Time goes by. `starting` while a process starts, evaluates or saves; `sampled` is when the store last took
        lines, where that is known apart from the lines themselves.
        """
        if sampled is not None:
            self._sampled, self._sampled_apart = sampled, True
        return self._time_rules(now, starting=starting)

    def _time_rules(self, now: float, *, starting: bool) -> list[Change]:
        changes: list[Change] = []
        for rule in self.rules:
            if isinstance(rule, Silence) and self._sampled is not None:
                changes += self._settle(rule, now - self._sampled > rule.above_seconds, now - self._sampled, now)
            elif isinstance(rule, NoProgress) and self._progressed is not None:
                limit = rule.starting_above_seconds if starting else rule.above_seconds
                changes += self._settle(rule, now - self._progressed > limit, now - self._progressed, now)
        return changes

    def _worse(self, rule: Worse, summary: Mapping[str, Any]) -> list[Change]:
        value, before = _number(summary, rule.metric), self._scores.get(rule.name)
        if value is None:
            return []
        self._scores[rule.name] = value
        step, self._step = self._step, int(summary["step"])
        changes = self._settle(rule, before is not None and value > before, value)
        self._step = max(step, self._step)
        return changes

    def _settle(self, rule: Rule, holds: bool | None, value: Any, now: float | None = None) -> list[Change]:
        """None: the line says nothing about the rule."""
        if holds is None or holds == (rule.name in self.active):
            return []
        change = Change(rule, holds, self._step, self._time if now is None else now, value)
        if holds:
            self.active[rule.name] = change
        else:
            del self.active[rule.name]
        return [change]


Machine = Callable[[Mapping[str, Any]], tuple[bool | None, Any]]


def value_at(line: Mapping[str, Any], path: str) -> Any:
    """What lies at a dotted path of a line, or ABSENT. Names with dots of their own are found too."""
    if path in line:
        return line[path]
    head, _, rest = path.partition(".")
    inner = line.get(head, ABSENT)
    return value_at(inner, rest) if rest and isinstance(inner, Mapping) else ABSENT


def _machine(rule: Rule, steps: int) -> Machine | None:
    match rule:
        case Limit():
            return lambda line: _limit(rule, line, steps)
        case MostOf():
            return _most_of(rule)
        case Often():
            return _often(rule)
        case FloorRise():
            return _floor_rise(rule)
        case Changed():
            return _changed(rule)
    return None


def _beyond(value: float, above: float | None, below: float | None) -> bool:
    return value > above if above is not None else below is not None and value < below


def _applies(line: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    return all(value_at(line, path) == wanted for path, wanted in where.items())


def _number(line: Mapping[str, Any], path: str) -> float | None:
    value = value_at(line, path)
    return float(value) if isinstance(value, int | float) else None


def _limit(rule: Limit, line: Mapping[str, Any], steps: int) -> tuple[bool | None, Any]:
    value = _number(line, rule.metric)
    if value is None or line["step"] <= rule.after_share * steps or not _applies(line, rule.only_where):
        return None, value
    return _beyond(value, rule.above, rule.below), value


def _most_of(rule: MostOf) -> Machine:
    window: deque[tuple[float, bool]] = deque()
    first: list[float] = []

    def take(line: Mapping[str, Any]) -> tuple[bool | None, Any]:
        value = _number(line, rule.metric)
        if value is None or not _applies(line, rule.only_where):
            return None, value
        moment = float(line["time"])
        first[:] = first or [moment]
        window.append((moment, _beyond(value, rule.above, rule.below)))
        while window[0][0] < moment - rule.seconds:
            window.popleft()
        if moment - first[0] < rule.seconds or len(window) < FEWEST_LINES:
            return None, value
        share = sum(bad for _, bad in window) / len(window)
        return share > 0.5, value

    return take


def _often(rule: Often) -> Machine:
    moments: deque[float] = deque()

    def take(line: Mapping[str, Any]) -> tuple[bool | None, Any]:
        moment = float(line["time"])
        found = value_at(line, rule.metric)
        if found is not ABSENT and found:
            moments.append(moment)
        while moments and moments[0] < moment - rule.seconds:
            moments.popleft()
        return len(moments) >= rule.count, len(moments)

    return take


class _Lowest:
    """The lowest of the last `size` values: those that a later, lower one makes irrelevant are forgotten."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept: deque[tuple[int, float]] = deque()

    def add(self, number: int, value: float) -> None:
        while self._kept and self._kept[-1][1] >= value:
            self._kept.pop()
        self._kept.append((number, value))
        while self._kept[0][0] <= number - self._size:
            self._kept.popleft()

    @property
    def value(self) -> float | None:
        return self._kept[0][1] if self._kept else None


def _floor_rise(rule: FloorRise) -> Machine:
    recent, trailing = _Lowest(rule.recent_lines), _Lowest(rule.trailing_lines)
    pending: deque[tuple[int, float]] = deque()
    count = [0]

    def take(line: Mapping[str, Any]) -> tuple[bool | None, Any]:
        value = _number(line, rule.metric)
        if value is None:
            return None, value
        count[0] += 1
        recent.add(count[0], value)
        pending.append((count[0], value))
        if len(pending) > rule.recent_lines:
            trailing.add(*pending.popleft())
        if trailing.value is None or recent.value is None:
            return None, value
        rise = recent.value - trailing.value
        return rise > rule.above, rise

    return take


def _changed(rule: Changed) -> Machine:
    before: list[Any] = []

    def take(line: Mapping[str, Any]) -> tuple[bool | None, Any]:
        value = value_at(line, rule.metric)
        if value is ABSENT:
            return None, None
        changed = bool(before) and before[0] != value
        before[:] = [value]
        return changed, value

    return take
