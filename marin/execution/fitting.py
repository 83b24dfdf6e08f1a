"""Whether a value is what an annotation says, all the way down."""

from __future__ import annotations

import dataclasses
import functools
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
    return next((text for part in _parts(value, arguments) if (text := misfit(*_placed(part, path))) is not None), None)


def _is_instance(value: Any, kind: type) -> bool:
    if kind in (int, float):
        return isinstance(value, (int, float) if kind is float else int) and not isinstance(value, bool)
    return isinstance(value, kind)


def _parts(value: Any, arguments: tuple[Any, ...]) -> Iterable[tuple[Any, Any, str]]:
    """(value, annotation, place) of what lies one level down. An artifact inside a value has a record of its own."""
    if isinstance(value, Artifact):
        return
    if dataclasses.is_dataclass(value):
        kind: type = type(value)
        for name, annotation in _annotations(kind).items():
            yield getattr(value, name), annotation, f".{name}"
    elif isinstance(value, Mapping) and len(arguments) == 2:
        for key, item in value.items():
            yield item, arguments[1], f".{key}"
    elif isinstance(value, tuple) and arguments and arguments[-1] is not Ellipsis:
        for index, (item, annotation) in enumerate(zip(value, arguments, strict=False)):
            yield item, annotation, f"[{index}]"
    elif isinstance(value, (list, tuple, set, frozenset)) and arguments:
        for index, item in enumerate(value):
            yield item, arguments[0], f"[{index}]"


def _placed(part: tuple[Any, Any, str], path: str) -> tuple[Any, Any, str]:
    value, annotation, place = part
    return value, annotation, f"{path}{place}"


def _wrong(value: Any, annotation: Any, path: str) -> str:
    wanted = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    shown = f"an artifact {type(value).__name__}" if isinstance(value, Artifact) else repr(value)
    return f"{path} is {shown}, which is no {wanted}"
