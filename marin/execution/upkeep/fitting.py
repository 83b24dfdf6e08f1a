"""Whether a value is what an annotation says, all the way down. For results that people write by hand."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any


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
    """(value, annotation, place) of what lies one level down."""
    if dataclasses.is_dataclass(value):
        hints = typing.get_type_hints(type(value))
        for field in dataclasses.fields(value):
            yield getattr(value, field.name), hints[field.name], f".{field.name}"
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
    return f"{path} is {value!r}, which is no {wanted}"
