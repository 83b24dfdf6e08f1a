"""Results of steps as JSON, and back by annotation."""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from marin.execution.artifact import Artifact, binding_of
from marin.execution.failures import StepError
from marin.execution.secrets import Secret

Reference = Mapping[str, str]
"""`$artifact`: the key of a record; `$prefix`: the URL of its prefix, where that is not the referring record's own."""

Load = Callable[[Reference, type[Artifact]], Artifact]


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def encode(value: Any, path: str = "result", *, home: str = "") -> Any:
    """The JSON form of a result; a materialised artifact becomes a reference to its record.

    `home` is the URL of the prefix in which the result will lie.
    """
    if value is None or (isinstance(value, (bool, int, str)) and not isinstance(value, enum.Enum)):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else {"$float": repr(value)}
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, Artifact) and path != "result":
        binding = binding_of(value)
        if binding is None:
            raise StepError(f"{path} is a {type(value).__name__} that no step has made; return what came in")
        away = {} if binding.store.url == home else {"$prefix": binding.store.url}
        return {"$artifact": binding.record.key, **away}
    if isinstance(value, Secret):
        raise StepError(f"{path} is {value!r}, which is never written anywhere; leave it out of what you return")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: encode(getattr(value, field.name), f"{path}.{field.name}", home=home)
            for field in dataclasses.fields(value)
        }
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, (str, int)) or isinstance(key, (bool, enum.Enum)):
                raise StepError(f"{path} has the key {key!r}: a record holds keys of text or whole numbers")
        return {str(key): encode(item, f"{path}.{key}", home=home) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item, f"{path}[{index}]", home=home) for index, item in enumerate(value)]
    item = getattr(value, "item", None)
    if type(value).__module__ == "numpy" and callable(item) and getattr(value, "ndim", 1) == 0:
        return encode(item(), path, home=home)
    raise StepError(f"{path} is a {type(value).__name__}, which a record cannot hold; keep it in a file")


def decode(value: Any, annotation: Any, load: Load, path: str = "result") -> Any:
    """A value of the annotated type from its JSON form; artifacts are loaded by their record's key."""
    if value is None:
        return value
    if annotation in (Any, dict, list, object):
        return _untagged(value)
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return _decode_union(value, arguments, load, path)
    if isinstance(value, dict) and set(value) == {"$float"}:
        return float(value["$float"])
    if origin is typing.Literal:
        return value
    if isinstance(origin, type) and issubclass(origin, Mapping):
        number = arguments[0] is int
        return {
            int(key) if number else key: decode(item, arguments[1], load, f"{path}.{key}")
            for key, item in value.items()
        }
    if origin is tuple:
        kinds = [arguments[0]] * len(value) if arguments[-1:] == (Ellipsis,) else list(arguments)
        return tuple(
            decode(item, kind, load, f"{path}[{i}]") for i, (item, kind) in enumerate(zip(value, kinds, strict=True))
        )
    if origin in (list, set, frozenset):
        return origin(decode(item, arguments[0], load, f"{path}[{i}]") for i, item in enumerate(value))
    if not isinstance(annotation, type):
        return value
    if isinstance(value, dict) and "$artifact" in value and issubclass(annotation, Artifact):
        return load(value, annotation)
    if issubclass(annotation, enum.Enum):
        return annotation[value]
    if dataclasses.is_dataclass(annotation):
        hints = _hints(annotation)
        return annotation(**{name: decode(item, hints[name], load, f"{path}.{name}") for name, item in value.items()})
    return float(value) if annotation is float else value


def references(value: Any) -> Iterator[Reference]:
    """Every reference to a record in a result's JSON form."""
    if isinstance(value, dict):
        if "$artifact" in value:
            yield value
        else:
            for item in value.values():
                yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


def without_references(value: Any, replacement: Callable[[Reference], Any]) -> Any:
    """A result's JSON form with every reference to a record replaced."""
    if isinstance(value, dict):
        if "$artifact" in value:
            return replacement(value)
        return {key: without_references(item, replacement) for key, item in value.items()}
    return [without_references(item, replacement) for item in value] if isinstance(value, list) else value


def _untagged(value: Any) -> Any:
    """A value without annotation: only floats that JSON lacks need a change."""
    if isinstance(value, dict):
        if set(value) == {"$float"}:
            return float(value["$float"])
        return {key: _untagged(item) for key, item in value.items()}
    return [_untagged(item) for item in value] if isinstance(value, list) else value


def _decode_union(value: Any, members: tuple[Any, ...], load: Load, path: str) -> Any:
    candidates = [member for member in members if member is not type(None)]
    if isinstance(value, dict):
        for member in candidates:
            if dataclasses.is_dataclass(member) and set(value) <= {field.name for field in dataclasses.fields(member)}:
                return decode(value, member, load, path)
    return decode(value, candidates[0], load, path) if len(candidates) == 1 else value


def qualified_name(cls: type) -> str:
    """`module:qualname` of a class."""
    return f"{cls.__module__}:{cls.__qualname__}"


def find_class(name: str) -> type:
    """The class of a `module:qualname`."""
    module, _, qualname = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    if not isinstance(found, type):
        raise StepError(f"{name} is not a class")
    return found
