"""Recipes whose identities are known."""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from marin.execution import Artifact, External, added, runtime, step
from marin.execution.planning.plan import planned_steps


class Extractor(enum.Enum):
    """A choice; its names count, its values do not."""

    resiliparse = 1
    trafilatura = 2


@dataclass(frozen=True)
class Rule:
    """A nested config."""

    name: str
    threshold: float
    keep: bool = True


@dataclass(frozen=True)
class Config:
    """One of everything that may stand in a config."""

    rate: float = 1.0
    count: int = 1
    name: str = "web"
    languages: frozenset[str] = frozenset()
    extractor: Extractor = Extractor.resiliparse
    rules: tuple[Rule, ...] = ()
    weights: dict[str, float] = field(default_factory=dict)
    limit: float | None = None
    either: int | float = 0
    raw: bytes = b""
    function: Callable[[str], str] | None = None
    anything: Any = None
    crawl: External | None = None
    workers: int = runtime(4)
    level: str = runtime(default_factory=lambda: "INFO")
    later: str = added("off", since="2026.12")


@dataclass(frozen=True, kw_only=True)
class Result(Artifact):
    """What these steps return."""

    value: int


@step("recipes/source", version="1")
def source(config: Config = Config()) -> Result:
    """Never run."""
    return Result(value=1)


@dataclass(frozen=True)
class Inner:
    """Holds an artifact two levels down."""

    weight: float
    part: Result


@dataclass(frozen=True)
class Outer:
    """Holds artifacts in a dict, a tuple and a nested dataclass."""

    parts: dict[str, Inner]
    pair: tuple[Result, Result]


@step("recipes/sink", version="2")
def sink(first: Result, many: tuple[Result, ...] = (), nested: Outer | None = None, seed: int = 0) -> Result:
    """Never run."""
    return Result(value=2)


@step("recipes/any", version="1")
def whatever(value: Any) -> Result:
    """Takes anything, for values that are refused."""
    return Result(value=3)


def importable(text: str) -> str:
    """A function that a config may name."""
    return text


def closure() -> Callable[[], str]:
    """A function that can't be imported."""
    text = "captured"

    def inner() -> str:
        return text

    return inner


partial = functools.partial(importable, "x")


def identity(target: Artifact) -> str:
    """The identity of a handle."""
    return planned_steps([target])[1][0].identity


def document(target: Artifact) -> dict[str, Any]:
    """What is hashed for a handle."""
    return planned_steps([target])[1][0].document


def rich_config(**changes: Any) -> Config:
    """A config that uses everything."""
    full = Config(
        rate=0.001,
        count=3,
        name="naïve café 日本",
        languages=frozenset({"de", "en", "fr", "it", "pt", "pl"}),
        extractor=Extractor.trafilatura,
        rules=(Rule("a", 0.5), Rule("b", 1, keep=False)),
        weights={"b": 2, "a": 0.5},
        limit=float("inf"),
        either=1,
        raw=b"\x00\xff",
        function=importable,
        anything=[{"z": float("nan")}, {3, 1, 2}, -0.0],
        crawl=External("/data/crawl-1", version="CC-MAIN-2026-40"),
    )
    return dataclasses.replace(full, **changes)


def graphs() -> dict[str, Artifact]:
    """The handles whose identities the golden file holds."""
    plain, full = source(), source(rich_config())
    nested = Outer({"x": Inner(1, full), "a": Inner(0.5, plain)}, (plain, full))
    return {
        "defaults": plain,
        "everything": full,
        "dependencies": sink(plain, (full, plain), nested, seed=2**63 - 1),
    }
