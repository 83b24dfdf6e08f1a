"""What kind of field, and which config class, counts for an identity."""

from __future__ import annotations

import dataclasses
import enum
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import pytest

from marin.execution import Artifact, External, Secret, added, runtime, step
from marin.execution.fields import found_in
from tests.execution.recipes import Result, Rule, document, identity, source, whatever


class Mode(enum.Enum):
    """A choice."""

    off = "off"
    on = "on"


def with_field(kind: Any, declared: Any, **values: Any) -> str:
    """The identity of a config that has `rate` and the field `later`."""
    made = dataclasses.make_dataclass("After", [("rate", float, 1.0), ("later", kind, declared)], frozen=True)
    return identity(whatever(made(**values)))


@pytest.fixture
def before() -> str:
    return identity(whatever(dataclasses.make_dataclass("Before", [("rate", float, 1.0)], frozen=True)()))


@pytest.mark.parametrize(
    ("kind", "literal", "other"),
    [
        (str, "off", "on"),
        (bool, False, True),
        (int | None, None, 3),
        (float, 0, 0.5),
        (Mode, Mode.off, Mode.on),
        (tuple[float, ...], (1, 2), (1.0, 2.5)),
        (tuple[Mode, ...], (), (Mode.on,)),
        (list[int], [1], [1, 2]),
        (frozenset[str], frozenset({"a", "b"}), frozenset({"a"})),
        (dict[str, float], {"a": 1}, {"a": 2.0}),
        (Rule | None, None, Rule("a", 0.5)),
    ],
)
def test_an_added_field_counts_only_away_from_its_literal(kind: Any, literal: Any, other: Any, before: str) -> None:
    assert with_field(kind, added(literal, since="2026.12")) == before
    assert with_field(kind, added(literal, since="2026.12"), later=literal) == before
    assert with_field(kind, added(literal, since="2026.12"), later=other) != before


def test_another_default_changes_the_identity_and_the_literal_stays(before: str) -> None:
    assert with_field(str, added("off", since="2026.12", default="on")) != before
    assert with_field(str, added("off", since="2026.12", default="on"), later="off") == before
    assert with_field(str, added("off", since="2026.12", default="on")) == with_field(
        str, added("off", since="2026.12"), later="on"
    )
    assert with_field(list[int], added([], since="2026.12", default_factory=lambda: [1])) != before
    assert with_field(list[int], added([], since="2026.12", default_factory=list)) == before


def test_values_that_python_calls_equal_are_told_apart(before: str) -> None:
    assert with_field(Any, added(1, since="2026.12"), later=True) != before
    assert with_field(Any, added(0, since="2026.12"), later=False) != before
    assert with_field(Any, added(1, since="2026.12"), later=1) == before


def test_the_literal_of_a_config_class_is_its_fields_and_does_not_follow_its_defaults(before: str) -> None:
    literal = {"name": "a", "threshold": 1, "keep": True}
    declared = added(literal, since="2026.12", default=Rule("a", 1.0))
    assert with_field(Rule, declared) == before
    literal["name"] = "changed by its owner"
    assert with_field(Rule, added({"name": "a", "threshold": 1, "keep": True}, since="2026.12", default=Rule("a", 1.0)))
    assert with_field(Rule, declared) == before
    stricter = dataclasses.make_dataclass(
        "Rule", [("name", str), ("threshold", float), ("keep", bool, False)], frozen=True
    )
    assert with_field(stricter, declared, later=stricter("a", 1.0)) != before
    assert with_field(stricter, declared, later=stricter("a", 1.0, True)) == before
    with pytest.raises(TypeError, match=r"a Rule as its literal.*a dict of its fields"):
        added((Rule("a", 0.5),), since="2026.12")


def test_each_config_has_a_list_of_its_own() -> None:
    kind = dataclasses.make_dataclass("Config", [("later", list[int], added([1], since="2026.12"))])
    one, other = kind(), kind()
    one.later.append(2)
    assert other.later == [1]
    assert identity(whatever(other)) == identity(whatever(dataclasses.make_dataclass("Empty", [])()))
    assert identity(whatever(one)) != identity(whatever(other))


@dataclass(frozen=True)
class Cosine:
    """A schedule."""

    share: float = 0.1


@dataclass(frozen=True)
class Linear:
    """Another schedule with equal fields."""

    share: float = 0.1


@dataclass(frozen=True)
class Steep(Linear):
    """A kind of linear schedule."""


class Shape(ABC):
    """What has corners."""

    @abstractmethod
    def corners(self) -> int:
        """How many."""


@dataclass(frozen=True)
class Square(Shape):
    """Has four."""

    side: float = 1.0

    def corners(self) -> int:
        return 4


@dataclass(frozen=True)
class Triangle(Shape):
    """Has three."""

    side: float = 1.0

    def corners(self) -> int:
        return 3


@dataclass(frozen=True)
class Settings:
    """Holds them at several depths."""

    only: Cosine = Cosine()
    either: Cosine | Linear | None = None
    many: tuple[Cosine | Linear, ...] = ()
    named: dict[str, Linear | Cosine] = field(default_factory=dict)
    base: Linear = Linear()
    shape: Shape | None = None


@step("fields/settings", version="1")
def settings(config: Settings) -> Result:
    """Never run."""
    return Result(value=1)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"either": Cosine()}, {"either": Linear()}),
        ({"many": (Cosine(), Linear())}, {"many": (Linear(), Cosine())}),
        ({"named": {"a": Cosine()}}, {"named": {"a": Linear()}}),
        ({"base": Linear()}, {"base": Steep()}),
        ({"shape": Square()}, {"shape": Triangle()}),
    ],
)
def test_classes_that_could_stand_in_one_place_are_told_apart(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert identity(settings(Settings(**one))) != identity(settings(Settings(**other)))


def test_a_field_that_allows_another_class_later_keeps_its_identities() -> None:
    def form(kind: Any, value: Any) -> Any:
        made = dataclasses.make_dataclass("Made", [("schedule", kind)], frozen=True)
        return document(whatever(made(value)))["config"]["value"]["schedule"]

    assert form(Cosine, Cosine()) == form(Cosine | Linear, Cosine()) == form(Cosine | Linear | None, Cosine())
    assert form(Cosine | Linear, Linear()) == {"share": 0.1, "$type": "Linear"}
    assert form(Any, Linear()) == {"share": 0.1}


@dataclass(frozen=True)
class Deep:
    """Externals and secrets, in fields of every kind."""

    files: tuple[External, ...]
    by_name: dict[str, External]
    token: Secret | None = runtime(None)
    upstream: Artifact | None = None


def test_objects_are_found_with_their_place_in_runtime_fields_too_and_not_in_artifacts() -> None:
    one, other = External("a", "1"), External("b", "2")
    config = Deep((one,), {"x": other}, Secret("TOKEN"), source())
    assert found_in({"config": config, "n": 3}, External) == [("config.files[0]", one), ("config.by_name.x", other)]
    assert found_in(config, (Secret,)) == [("token", Secret("TOKEN"))]
    assert found_in([1, "a", None], External) == []
