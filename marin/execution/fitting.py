"""Whether a value is what an annotation says, all the way down."""

from __future__ import annotations

import dataclasses
import functools
import numbers
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from marin.execution.artifact import Artifact
from marin.execution.codec import decode


def misfit_of_result(result: Any, kind: type[Artifact]) -> str | None:
    """What in a result's JSON form does not fit the fields of its artifact class, or None."""
    try:
        artifact = decode(result, kind, lambda reference, wanted: object.__new__(wanted))
    except (KeyError, TypeError, ValueError) as error:
        return f"the result does not fit {kind.__name__} ({type(error).__name__}: {error})"
    return misfit_of_fields(artifact)


@functools.cache
def _annotations(kind: type) -> dict[str, Any]:
    """The annotations of a dataclass's fields."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def misfit_of_fields(artifact: Artifact) -> str | None:
    """What in the fields of an artifact does not fit them, or None."""
    kind: type = type(artifact)
    for name, annotation in _annotations(kind).items():
        text = misfit(getattr(artifact, name), annotation, f"result.{name}")
        if text is not None:
            return text
    return None


def misfit(value: Any, annotation: Any, path: str) -> str | None:
    """What in a value does not fit its annotation, as one text with its place, or None."""
    if annotation is Any or annotation is object:
        return None
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        members = [member for member in arguments if member is not type(None)]
        if len(members) == 1 and value is not None:
            return misfit(value, members[0], path)
        found = [misfit(value, member, path) for member in arguments]
        return None if None in found else _wrong(value, annotation, path)
    if annotation is None or annotation is type(None):
        return None if value is None else _wrong(value, annotation, path)
    if origin is typing.Literal:
        return None if value in arguments else _wrong(value, annotation, path)
    kind = origin or annotation
    if not isinstance(kind, type):
        return None
    if not _is_instance(value, kind):
        return _wrong(value, annotation, path)
    for item, wanted, place in _parts(value, kind, arguments):
        if (text := misfit(item, wanted, path + place)) is not None:
            return text
    return None


def misfit_of_arguments(arguments: Mapping[str, Any], annotations: Mapping[str, Any]) -> str | None:
    """What in the arguments of a step call does not fit the annotations of its function, or None."""
    for name, value in arguments.items():
        text = misfit(value, annotations.get(name, Any), name)
        if text is not None:
            return text
    return None


def _is_instance(value: Any, kind: type) -> bool:
    if kind in (int, float):  # NumPy's numbers are numbers too, and true is none
        return isinstance(value, numbers.Real if kind is float else numbers.Integral) and not isinstance(value, bool)
    if kind is tuple:  # a list in its place has the same identity
        return isinstance(value, (tuple, list))
    return getattr(kind, "_is_protocol", False) or isinstance(value, kind)


def _parts(value: Any, kind: Any, arguments: tuple[Any, ...]) -> Iterable[tuple[Any, Any, str]]:
    """(value, annotation, place) of what lies one level down. An artifact inside a value has a record of its own."""
    if isinstance(value, Artifact):
        return
    if dataclasses.is_dataclass(value):
        own: type = type(value)
        for name, annotation in _annotations(own).items():
            yield getattr(value, name), annotation, f".{name}"
    elif isinstance(value, Mapping) and len(arguments) == 2:
        for key, item in value.items():
            yield item, arguments[1], f".{key}"
    elif kind is tuple and arguments and arguments[-1] is not Ellipsis:
        for index, (item, annotation) in enumerate(zip(value, arguments, strict=False)):
            yield item, annotation, f"[{index}]"
    elif isinstance(value, (list, tuple, set, frozenset)) and arguments:
        for index, item in enumerate(value):
            yield item, arguments[0], f"[{index}]"


def _wrong(value: Any, annotation: Any, path: str) -> str:
    wanted = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    shown = f"an artifact {type(value).__name__}" if isinstance(value, Artifact) else repr(value)
    return f"{path} is {shown}, which is no {wanted}"
