"""A handle on data that no step of ours made: `adopted("documents/mine", version="2026-11", kind=Documents)`.

In a graph it stands like the result of a step. Its recipe is its name, its version and the name of its class, so the
same handle means the same data in every prefix into which `marin adopt` brought it.
"""

from __future__ import annotations

from typing import TypeVar

from marin.execution.artifact import Artifact
from marin.execution.codec import qualified_name
from marin.execution.failures import StepError
from marin.execution.step import StepCall, step

A = TypeVar("A", bound=Artifact)

MARK = "_adopted"


def adopted(name: str, *, version: str, kind: type[A]) -> A:
    """The adopted artifact of a name and version, unmaterialised.

    A plan that finds no record of it says how to adopt it.
    """
    if not (isinstance(kind, type) and issubclass(kind, Artifact)):
        raise TypeError(f"kind is a class of artifacts such as Documents, got {kind!r}")

    def artifact(role: str) -> A:
        raise StepError(how_to_adopt(name, version, kind))

    artifact.__annotations__ = {"role": str, "return": kind}
    artifact.__dict__[MARK] = True
    return step(name, version=version, inline=True)(artifact)(kind.__name__)


def is_adopted(call: StepCall) -> bool:
    """Whether a call stands for data that was adopted, which no run can make."""
    return MARK in call.step.function.__dict__


def how_to_adopt(name: str, version: str, kind: type[Artifact]) -> str:
    """The command that adopts data under a name."""
    return f"marin adopt PATH --name {name} --version {version} --type {qualified_name(kind)}"


def refuse_unadopted(call: StepCall, display: str, reason: str, url: str) -> None:
    """Raise `StepError` when a plan would have to run a call that stands for adopted data."""
    if is_adopted(call):
        way = how_to_adopt(call.name, call.step.version, call.step.result_type)
        raise StepError(f"{display} stands for data that has to be adopted into {url} ({reason}): {way}")
