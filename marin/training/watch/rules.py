"""Alert rules: when a person should look at a run. One YAML file, checked; errors name the rule and the field.

Each rule has a kind, which says how its metric (a dotted path into a metrics line) is judged. Imports nothing heavy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marin.execution import StepError

SCHEMA = 2
SEVERITIES = ("page", "look", "note")
PACKAGED = Path(__file__).with_name("alerts.yaml")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What all kinds have. `page` wakes someone, `look` waits for the morning, `note` only informs."""

    name: str
    severity: str
    when: str
    """The condition in words."""
    why: str
    """What is probably behind it."""

    def faults(self) -> list[str]:
        """What is wrong with the values, in words."""
        found = []
        if not self.name.isidentifier():
            found.append(f"name is {self.name!r}; give a word of letters, digits and underscores")
        if self.severity not in SEVERITIES:
            found.append(f"severity is {self.severity!r}; give one of {', '.join(SEVERITIES)}")
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if item.name.endswith("seconds") and value <= 0:
                found.append(f"{item.name} is {value}; give seconds above 0")
            if item.name in ("count", "recent_lines", "trailing_lines") and value < 1:
                found.append(f"{item.name} is {value}; give at least 1")
            if item.name.endswith("share") and not 0 <= value <= 1:
                found.append(f"{item.name} is {value}; give a share from 0 to 1")
        return found


@dataclass(frozen=True, kw_only=True)
class Silence(Rule):
    """No sample has reached the store for `above_seconds`."""

    above_seconds: float


@dataclass(frozen=True, kw_only=True)
class NoProgress(Rule):
    """No step was finished for `above_seconds`, or for `starting_above_seconds` while a process starts, evaluates or
    saves.
    """

    above_seconds: float
    starting_above_seconds: float


@dataclass(frozen=True, kw_only=True)
class Limit(Rule):
    """The metric is above or below its limit."""

    metric: str
    above: float | None = None
    below: float | None = None
    after_share: float = 0.0
    """Not in this share of the steps, from the first."""
    only_where: Mapping[str, Any] = field(default_factory=dict)
    """Dotted paths and what a line must have there."""

    def faults(self) -> list[str]:
        return super().faults() + _one_limit(self.above, self.below)


@dataclass(frozen=True, kw_only=True)
class MostOf(Rule):
    """The metric was above or below its limit in more than half of the lines of the last `seconds`."""

    metric: str
    seconds: float
    above: float | None = None
    below: float | None = None
    only_where: Mapping[str, Any] = field(default_factory=dict)

    def faults(self) -> list[str]:
        return super().faults() + _one_limit(self.above, self.below)


@dataclass(frozen=True, kw_only=True)
class Often(Rule):
    """The metric was there, and neither false nor zero, in at least `count` lines of the last `seconds`."""

    metric: str
    count: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class FloorRise(Rule):
    """The lowest of the last `recent_lines` is more than `above` over the lowest of `trailing_lines` before."""

    metric: str
    above: float
    recent_lines: int
    trailing_lines: int


@dataclass(frozen=True, kw_only=True)
class Worse(Rule):
    """The metric of an evaluation is higher than in the one before it."""

    metric: str


@dataclass(frozen=True, kw_only=True)
class Changed(Rule):
    """The metric has another value than in the line before."""

    metric: str


KINDS: dict[str, type[Rule]] = {
    "silence": Silence,
    "no_progress": NoProgress,
    "limit": Limit,
    "most_of": MostOf,
    "often": Often,
    "floor_rise": FloorRise,
    "worse": Worse,
    "changed": Changed,
}


def read_rules(path: Path = PACKAGED) -> tuple[Rule, ...]:
    """The rules of a file; raises StepError with every fault of it."""
    import yaml

    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise StepError(f"the alert rules {path} cannot be read: {error}") from error
    return parse_rules(content, str(path))


def parse_rules(content: Any, where: str) -> tuple[Rule, ...]:
    """The rules of a parsed file; raises StepError with every fault, by rule and field."""
    if not isinstance(content, Mapping) or content.get("schema") != SCHEMA:
        raise StepError(f"{where}: `schema` is not {SCHEMA}, so these are no alert rules of this version")
    listed = content.get("alerts")
    if not isinstance(listed, list):
        raise StepError(f"{where}: `alerts` is no list of rules")
    rules: list[Rule] = []
    faults: list[str] = []
    for number, entry in enumerate(listed, 1):
        name = entry.get("name", f"number {number}") if isinstance(entry, Mapping) else f"number {number}"
        rule, wrong = _parse(entry)
        faults += [f"rule {name}: {text}" for text in wrong]
        if rule is not None:
            rules.append(rule)
    names = [rule.name for rule in rules]
    faults += [f"rule {name}: there are two of this name" for name in sorted({n for n in names if names.count(n) > 1})]
    if faults:
        raise StepError(f"{where} cannot be used:\n  " + "\n  ".join(faults))
    return tuple(rules)


def _parse(entry: Any) -> tuple[Rule | None, list[str]]:
    if not isinstance(entry, Mapping):
        return None, ["it is no table of fields"]
    kind = KINDS.get(entry.get("kind", ""))
    if kind is None:
        return None, [f"kind is {entry.get('kind')!r}; give one of {', '.join(KINDS)}"]
    fields = {item.name: item for item in dataclasses.fields(kind)}
    given = {key: value for key, value in entry.items() if key != "kind"}
    faults = [f"{key} is no field of the kind {entry['kind']}" for key in given if key not in fields]
    for name, item in fields.items():
        required = item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
        if name not in given:
            faults += [f"{name} is missing"] if required else []
        elif not _fits(str(item.type), given[name]):
            faults.append(f"{name} is {given[name]!r}; give {_wanted(str(item.type))}")
    if faults:
        return None, faults
    rule = kind(**given)
    return rule, rule.faults()


def _fits(annotation: str, value: Any) -> bool:
    if annotation == "str":
        return isinstance(value, str) and bool(value)
    if annotation.startswith("Mapping"):
        return isinstance(value, Mapping)
    if annotation == "int":
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _wanted(annotation: str) -> str:
    return {"str": "a text", "int": "a whole number"}.get(
        annotation, "a table" if annotation.startswith("Mapping") else "a number"
    )


def _one_limit(above: float | None, below: float | None) -> list[str]:
    return [] if (above is None) != (below is None) else ["give either `above` or `below`, and not both"]
