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
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from marin.execution.artifact import Artifact, binding_of, call_of
from marin.execution.fields import ADDED, RUNTIME
from marin.execution.plain_text import is_absolute_path, token_in
from marin.execution.secrets import Secret
from marin.execution.step import StepCall

SCHEMA = 1
_NO_TEXT = frozenset({bool, int, float, type(None)})


class UnstableValue(TypeError):
    """A config holds something that has no stable form."""


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


Path = Any
"""Where a value stands in a config: text, or (path above, last part). Rendered only when something is to be said."""


def place(path: Path) -> str:
    """A path as text."""
    parts: list[str] = []
    while not isinstance(path, str):
        path, part = path
        parts.append(f"[{part}]" if isinstance(part, int) else f".{part}")
    return path + "".join(reversed(parts))


@functools.cache
def _fields(cls: type) -> tuple[tuple[tuple[str, Any, str | None], ...], tuple[str, ...]]:
    """Of a config class: (name, annotation, text of the form that is left out) of the fields that count; the others."""
    hints = _hints(cls)
    counted, others = [], []
    for field in dataclasses.fields(cls):
        if field.metadata.get(RUNTIME):
            others.append(field.name)
        else:
            hint = hints[field.name]
            left_out = dumps(_literal_form(field.metadata[ADDED][0], hint)) if ADDED in field.metadata else None
            counted.append((field.name, hint, left_out))
    return tuple(counted), tuple(others)


def _literal_form(literal: Any, annotation: Any) -> Any:
    """The form of an `added` literal; a mapping may stand for the fields of a config class."""
    if isinstance(literal, Mapping):
        configs = (one for one in _choices(annotation) if isinstance(one, type) and dataclasses.is_dataclass(one))
        hints = next((_hints(one) for one in configs), None)
        inner = {key: hints.get(key, Any) if hints else _element(annotation, 0) for key in literal}
        return {key: _literal_form(item, inner[key]) for key, item in literal.items()}
    if isinstance(literal, (list, tuple)):
        return [_literal_form(item, _element(annotation, index)) for index, item in enumerate(literal)]
    return canonical(literal, annotation, "literal", [])


@functools.cache
def _tag(cls: type, annotation: Any) -> str | None:
    """What tells a config class from others that could stand in its place, since two may have equal fields.

    The first class that a field is declared to hold has no tag, so that a field that allows more classes later keeps
    its identities; nor has any class where nothing is declared. The others have their name, never their module.
    """
    declared = [typing.get_origin(one) or one for one in _choices(annotation)]
    configs = [one for one in declared if dataclasses.is_dataclass(one)]
    abstract = any(inspect.isabstract(one) or getattr(one, "_is_protocol", False) for one in declared)
    return None if cls in configs[:1] or not (configs or abstract) else cls.__qualname__


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


@functools.cache
def _is_float(annotation: Any) -> bool:
    """Whether a whole number in a field of this annotation means a float."""
    return float in _choices(annotation) and int not in _choices(annotation)


def canonical(value: Any, annotation: Any, path: Path, dependencies: list[tuple[str, Any]]) -> Any:
    """The JSON form of a config value. Artifacts inside it are appended to `dependencies` as (path, artifact).

    Plans of ten thousand steps pass through here, so the form is found by the value's type, and paths are put into
    words only for an error or a dependency.
    """
    kind: type = type(value)
    return _form_of(kind)(value, annotation, path, dependencies)


@functools.cache
def _form_of(kind: type) -> Callable[[Any, Any, Path, list[tuple[str, Any]]], Any]:
    """The function that gives values of a type their form."""
    if kind in (type(None), bool):
        return _itself
    if issubclass(kind, enum.Enum):
        return _enum_form
    if issubclass(kind, Artifact):
        return _artifact_form
    if issubclass(kind, Secret):
        return _secret_form
    if dataclasses.is_dataclass(kind):
        return _dataclass_form
    for one, form in (
        (int, _int_form),
        (float, _float_form),
        (str, _text_form),
        (Mapping, _mapping_form),
        ((list, tuple), _sequence_form),
        ((set, frozenset), _set_form),
    ):
        if issubclass(kind, one):
            return form
    return _rare_form


def _itself(value: Any, annotation: Any, path: Path, dependencies: list[tuple[str, Any]]) -> Any:
    return value


def _enum_form(value: enum.Enum, annotation: Any, path: Path, dependencies: list[tuple[str, Any]]) -> Any:
    return value.name


def _int_form(value: int, annotation: Any, path: Path, dependencies: list[tuple[str, Any]]) -> Any:
    return canonical_float(float(value)) if _is_float(annotation) else value


def _float_form(value: float, annotation: Any, path: Path, dependencies: list[tuple[str, Any]]) -> Any:
    return canonical_float(value)


def _text_form(value: str, annotation: Any, path: Path, dependencies: list[tuple[str, Any]]) -> Any:
    if _is_plain(value):
        return value
    if is_absolute_path(value):
        raise _absolute_path(value, path)
    raise _exposed(str(token_in(value)), path)


@functools.lru_cache(4096)
def _is_plain(text: str) -> bool:
    """Whether a text may stand in a config. The steps of a plan share most of their texts."""
    return not is_absolute_path(text) and token_in(text) is None


def _secret_form(value: Secret, annotation: Any, path: Path, dependencies: list[tuple[str, Any]]) -> Any:
    return {"$secret": True}


def _exposed(token: str, path: Path) -> UnstableValue:
    return UnstableValue(
        f"{place(path)} holds what looks like {token}, and what stands in a config is written into records and logs; "
        'give it as Secret("NAME_OF_A_VARIABLE")'
    )


def _refuse_token(value: Any, path: Path) -> None:
    """Refuse a token in a field that does not count: it would be written with the settings of the run all the same."""
    if isinstance(value, str):
        if (token := token_in(value)) is not None:
            raise _exposed(token, path)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _refuse_token(item, (path, key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _refuse_token(item, (path, index))
    elif dataclasses.is_dataclass(value) and not isinstance(value, (type, Artifact)):
        for field in dataclasses.fields(value):
            _refuse_token(getattr(value, field.name), (path, field.name))


def _absolute_path(value: str, path: Path) -> UnstableValue:
    return UnstableValue(
        f"{place(path)} = {value!r} is an absolute path, which must not be part of an identity; "
        "give it as External(path, version=…) or in a runtime(…) field"
    )


def _artifact_form(value: Artifact, annotation: Any, path: Path, dependencies: list[tuple[str, Any]]) -> Any:
    dependencies.append((place(path), value))
    return {"$dependency": len(dependencies) - 1}


def _dataclass_form(value: Any, annotation: Any, path: Path, dependencies: list[tuple[str, Any]]) -> Any:
    form = {}
    cls: type = type(value)
    counted, others = _fields(cls)
    for name, hint, left_out in counted:
        item = canonical(getattr(value, name), hint, (path, name), dependencies)
        if left_out is None or dumps(item) != left_out:
            form[name] = item
    for name in others:
        item = getattr(value, name)
        if item.__class__ not in _NO_TEXT:
            _refuse_token(item, (path, name))
    if annotation is not cls and (tag := _tag(cls, annotation)) is not None:
        form["$type"] = tag
    return form


def _mapping_form(
    value: Mapping[Any, Any], annotation: Any, path: Path, dependencies: list[tuple[str, Any]]
) -> dict[str, Any]:
    for key in value:
        if not isinstance(key, str):
            raise UnstableValue(f"{place(path)} has the key {key!r}: only text can be a key")
    element = _element(annotation, 0)
    return {key: canonical(value[key], element, (path, key), dependencies) for key in sorted(value)}


def _sequence_form(
    value: list[Any] | tuple[Any, ...], annotation: Any, path: Path, dependencies: list[tuple[str, Any]]
) -> list[Any]:
    return [
        canonical(item, _element(annotation, index), (path, index), dependencies) for index, item in enumerate(value)
    ]


def _set_form(value: Any, annotation: Any, path: Path, dependencies: list[tuple[str, Any]]) -> list[Any]:
    above = len(dependencies)
    items = [canonical(item, _element(annotation, 0), (path, "…"), dependencies) for item in value]
    if len(dependencies) > above:
        raise UnstableValue(f"{place(path)} is a set of artifacts, which have no order; use a tuple")
    return sorted(items, key=dumps)


def _rare_form(value: Any, annotation: Any, path: Path, dependencies: list[tuple[str, Any]]) -> Any:
    if isinstance(value, bytes):
        return {"$bytes": value.hex()}
    if isinstance(value, PurePath):
        if value.is_absolute():
            raise _absolute_path(str(value), path)
        return value.as_posix()
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            raise UnstableValue(f"{place(path)} = {value!r} has no time zone")
        return value.astimezone(datetime.UTC).isoformat()
    if isinstance(value, datetime.date):
        return value.isoformat()
    if inspect.isfunction(value) and "<" not in value.__qualname__ and value.__module__ != "__main__":
        return f"{value.__module__}:{value.__qualname__}"
    item = getattr(value, "item", None)
    if type(value).__module__ == "numpy" and callable(item) and getattr(value, "ndim", 1) == 0:
        return canonical(item(), Any, path, [])
    raise UnstableValue(
        f"{place(path)} holds {value!r} of type {type(value).__name__}, which has no stable form; use numbers, text, "
        "enums, dataclasses, lists, dicts or functions that can be imported"
    )


def canonical_float(value: float) -> Any:
    """A float in JSON: shortest form, with tags where JSON has none; -0.0 is 0.0."""
    if math.isnan(value) or math.isinf(value):
        return {"$float": repr(value)}
    return 0.0 if value == 0 else value


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def dumps(value: Any) -> str:
    """Canonical JSON text: sorted keys, no spaces, one form for each value."""
    return _ENCODER.encode(value)


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
