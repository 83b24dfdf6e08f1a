"""Whether a plain value can be meant for a setting, before draccus makes it one: errors in the user's words.

draccus turns what it gets into what it wants: a word into a list of letters, `no` (false, to YAML) into the text
`False`, true into 1. Here such a value is refused, naming the setting.
"""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from typing import Any


def hints_of(cls: type) -> dict[str, Any]:
    """Annotations of a dataclass's fields."""
    return typing.get_type_hints(cls)


def members_of(annotation: Any) -> tuple[Any, ...]:
    """The alternatives of a union, or the annotation itself."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return typing.get_args(annotation)
    return (annotation,)


def wrong_kind(annotation: Any, value: Any, where: str) -> str | None:
    """What is wrong with `value` as the setting at `where`, in one sentence; None when it can be meant for it."""
    members = members_of(annotation)
    found = [_wrong(member, value, where) for member in members]
    if None in found:
        return None
    if len(members) == 1:
        return found[0]
    shaped = [text for text in found if text is not None and not text.startswith(f"{where} takes ")]
    if shaped:
        return shaped[0]
    return f"{where} takes {' or '.join(dict.fromkeys(_kind(member) for member in members))}, not {_shown(value)}"


def _wrong(annotation: Any, value: Any, where: str) -> str | None:
    origin = typing.get_origin(annotation) or annotation
    if not _fits(annotation, origin, value):
        hint = "; put it in quotes" if origin is str and not isinstance(value, (list, dict, type(None))) else ""
        return f"{where} takes {_kind(annotation)}, not {_shown(value)}{hint}"
    if isinstance(origin, type) and issubclass(origin, enum.Enum) and value not in origin.__members__:
        return f"{where} takes one of {', '.join(origin.__members__)}, not {_shown(value)}"
    arguments = typing.get_args(annotation)
    if origin in (tuple, list, set, frozenset) and arguments:
        kinds = arguments if origin is tuple and arguments[-1] is not Ellipsis else [arguments[0]] * len(value)
        parts = [(kind, item, f"{where}.{index}") for index, (kind, item) in enumerate(zip(kinds, value, strict=False))]
    elif origin is dict and len(arguments) == 2:
        parts = [(arguments[0], key, f"a key of {where}") for key in value]
        parts += [(arguments[1], item, f"{where}.{key}") for key, item in value.items()]
    elif dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        hints = hints_of(annotation)
        parts = [(hints[key], item, f"{where}.{key}") for key, item in value.items() if key in hints]
    else:
        parts = []
    return next((text for part in parts if (text := wrong_kind(*part)) is not None), None)


def _fits(annotation: Any, origin: Any, value: Any) -> bool:
    if annotation is Any:
        return True
    if value is None or annotation is type(None):
        return value is None and annotation is type(None)
    if origin in (tuple, list, set, frozenset):
        return isinstance(value, (list, tuple))
    if origin is dict or dataclasses.is_dataclass(annotation):
        return isinstance(value, dict)
    if origin in (int, float):
        return isinstance(value, (int, float, str)) and not isinstance(value, bool)
    if origin is str or (isinstance(origin, type) and issubclass(origin, enum.Enum)):
        return isinstance(value, str)
    return not isinstance(value, (list, dict))


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true (or yes)" if value else "false (or no)"
    return repr(value)


def _kind(annotation: Any) -> str:
    origin = typing.get_origin(annotation) or annotation
    if annotation is type(None):
        return "null"
    if origin in (tuple, list, set, frozenset):
        return "a list such as [a, b]"
    if origin is dict:
        return "a table such as {a: 1}"
    if dataclasses.is_dataclass(annotation):
        return "a group of settings"
    return {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}.get(origin, "one word")
