"""Identity: sha256 over a step's recipe in canonical JSON.

The recipe is {schema, step name, version, config, dependencies}. The whole config counts, defaults included; only
fields declared with `runtime(...)` and `added(...)` at their literal are left out. Values are coerced by annotation,
so that 1 in a float field is 1.0. Whatever has no stable form is refused, naming the field.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import hashlib
import inspect
import json
import math
import re
import types
import typing
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from marin.execution.artifact import Artifact, binding_of, call_of
from marin.execution.fields import ADDED, RUNTIME
from marin.execution.step import StepCall

SCHEMA = 1
ABSOLUTE = re.compile(r"(/|~/|file://|[A-Za-z]:[\\/])\S*[\w.]\S*")


class UnstableValue(TypeError):
    """A config holds something that has no stable form."""


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


@functools.cache
def _counted_fields(cls: type) -> tuple[tuple[str, Any, Any], ...]:
    """(name, annotation, literal that is left out or MISSING) of the fields that count."""
    hints = _hints(cls)
    return tuple(
        (field.name, hints[field.name], field.metadata[ADDED][0] if ADDED in field.metadata else dataclasses.MISSING)
        for field in dataclasses.fields(cls)
        if not field.metadata.get(RUNTIME)
    )


@functools.cache
def _choices(annotation: Any) -> tuple[Any, ...]:
    """The members of a union without None; a plain annotation is its own only member."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return tuple(member for member in typing.get_args(annotation) if member is not type(None))
    return (annotation,)


@functools.cache
def _element(annotation: Any, index: int) -> Any:
    """The annotation of a sequence's member, or of a mapping's value."""
    for member in _choices(annotation):
        arguments = typing.get_args(member)
        origin = typing.get_origin(member)
        if isinstance(origin, type) and issubclass(origin, Mapping) and len(arguments) == 2:
            return arguments[1]
        if origin is tuple and arguments and arguments[-1] is not Ellipsis:
            return arguments[index] if index < len(arguments) else Any
        if arguments:
            return arguments[0]
    return Any


def canonical(value: Any, annotation: Any, path: str, dependencies: list[tuple[str, Any]]) -> Any:
    """The JSON form of a config value. Artifacts inside it are appended to `dependencies` as (path, artifact)."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, int):
        return (
            canonical_float(float(value))
            if float in _choices(annotation) and int not in _choices(annotation)
            else value
        )
    if isinstance(value, float):
        return canonical_float(value)
    if isinstance(value, str):
        if ABSOLUTE.fullmatch(value):
            raise UnstableValue(
                f"{path} = {value!r} is an absolute path, which must not be part of an identity; "
                "give it as External(path, version=…) or in a runtime(…) field"
            )
        return value
    if isinstance(value, Artifact):
        dependencies.append((path, value))
        return {"$dependency": len(dependencies) - 1}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            name: canonical(getattr(value, name), hint, f"{path}.{name}", dependencies)
            for name, hint, literal in _counted_fields(type(value))
            if literal is dataclasses.MISSING or getattr(value, name) != literal
        }
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise UnstableValue(f"{path} has the key {key!r}: only text can be a key")
        return {
            key: canonical(value[key], _element(annotation, 0), f"{path}.{key}", dependencies) for key in sorted(value)
        }
    if isinstance(value, (list, tuple)):
        return [
            canonical(item, _element(annotation, index), f"{path}[{index}]", dependencies)
            for index, item in enumerate(value)
        ]
    if isinstance(value, (set, frozenset)):
        above = len(dependencies)
        items = [canonical(item, _element(annotation, 0), f"{path}[…]", dependencies) for item in value]
        if len(dependencies) > above:
            raise UnstableValue(f"{path} is a set of artifacts, which have no order; use a tuple")
        return sorted(items, key=dumps)
    return _canonical_rare(value, path)


def _canonical_rare(value: Any, path: str) -> Any:
    if isinstance(value, bytes):
        return {"$bytes": value.hex()}
    if isinstance(value, PurePath):
        if value.is_absolute():
            raise UnstableValue(
                f"{path} = {str(value)!r} is an absolute path, which must not be part of an identity; "
                "give it as External(path, version=…) or in a runtime(…) field"
            )
        return value.as_posix()
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            raise UnstableValue(f"{path} = {value!r} has no time zone")
        return value.astimezone(datetime.UTC).isoformat()
    if isinstance(value, datetime.date):
        return value.isoformat()
    if inspect.isfunction(value) and "<" not in value.__qualname__ and value.__module__ != "__main__":
        return f"{value.__module__}:{value.__qualname__}"
    item = getattr(value, "item", None)
    if type(value).__module__ == "numpy" and callable(item) and getattr(value, "ndim", 1) == 0:
        return canonical(item(), Any, path, [])
    raise UnstableValue(
        f"{path} holds {value!r} of type {type(value).__name__}, which has no stable form; use numbers, text, "
        "enums, dataclasses, lists, dicts or functions that can be imported"
    )


def canonical_float(value: float) -> Any:
    """A float in JSON: shortest form, with tags where JSON has none; -0.0 is 0.0."""
    if math.isnan(value) or math.isinf(value):
        return {"$float": repr(value)}
    return 0.0 if value == 0 else value


def dumps(value: Any) -> str:
    """Canonical JSON text: sorted keys, no spaces, one form for each value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A step call's canonical form: its config, and where in the config its dependencies stand."""

    config: Any
    dependencies: list[tuple[str, Artifact]]


def recipe_of(call: StepCall) -> Recipe:
    """The recipe of a call, before the identities of its dependencies are known."""
    dependencies: list[tuple[str, Any]] = []
    config = {
        name: canonical(value, call.step.annotations.get(name, Any), name, dependencies)
        for name, value in call.arguments.items()
    }
    return Recipe(config, dependencies)


def identity_document(call: StepCall, recipe: Recipe, identities: list[str]) -> dict[str, Any]:
    """What is hashed, given the identity of each dependency in the recipe's order."""
    return {
        "schema": SCHEMA,
        "name": call.step.name,
        "version": call.step.version,
        "config": recipe.config,
        "dependencies": [[path, identity] for (path, _), identity in zip(recipe.dependencies, identities, strict=True)],
    }


def digest(document: Any) -> str:
    """sha256 in hex of a value's canonical JSON."""
    return hashlib.sha256(dumps(document).encode()).hexdigest()


def dependency_identity(artifact: Artifact, known: Mapping[int, str]) -> str:
    """The identity of a dependency: of its call in the graph, or of its record when it is materialised."""
    call = call_of(artifact)
    if call is not None:
        return known[id(call)]
    binding = binding_of(artifact)
    if binding is None:
        raise UnstableValue(f"{type(artifact).__name__} was made by hand: a graph takes what its steps return")
    return binding.record.identity
