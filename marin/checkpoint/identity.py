"""What a checkpoint belongs to, and the comparison with what a run asks for."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from marin.checkpoint.errors import IdentityMismatch
from marin.execution.fields import ADDED, RUNTIME


def as_json(value: Any) -> Any:
    """Plain JSON data of a config, as far as it decides what is computed: dataclasses become objects, enums their
    names, tuples lists.

    As in the identity of a step, a field that only says how is left out, and one that joined later is left out while
    it says what held before it was there: neither makes a checkpoint another one.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {field.name: as_json(item) for field, item in fields.items() if _decides(field, item)}
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"{value!r} of {type(value)} has no JSON form")


def check_identity(stored: Mapping[str, Any], own: Mapping[str, Any], where: str, allow: Sequence[str] = ()) -> None:
    """Raises IdentityMismatch with one line for each differing field unless the two identities are equal.

    Fields whose dotted path matches a pattern of `allow` (fnmatch: `mixture`, `optimizer.*`) may differ.
    """
    lines = differences(stored, own, allow)
    if lines:
        listed = "\n  ".join(lines)
        raise IdentityMismatch(
            f"the {where} belongs to another run (field: checkpoint -> this run):\n  {listed}\n"
            "Go on with the settings that it was made with, or begin another run from it with `init`, naming the "
            "fields that may differ."
        )


def differences(stored: Mapping[str, Any], own: Mapping[str, Any], allow: Sequence[str] = ()) -> list[str]:
    """One readable line for each leaf that differs and is not allowed to, by its dotted path."""
    left, right = _leaves(stored, ""), _leaves(own, "")
    lines = []
    for path in sorted(left.keys() | right.keys()):
        was, now = left.get(path, _ABSENT), right.get(path, _ABSENT)
        if was != now and not any(fnmatch.fnmatchcase(path, pattern) for pattern in allow):
            lines.append(f"{path}: {was!r} -> {now!r}")
    return lines


class _Absent:
    def __repr__(self) -> str:
        return "(absent)"


_ABSENT = _Absent()


def _decides(field: dataclasses.Field[Any], value: Any) -> bool:
    """Whether the field is part of the identity with this value."""
    if field.metadata.get(RUNTIME):
        return False
    if ADDED not in field.metadata:
        return True
    literal, _ = field.metadata[ADDED]
    return bool(as_json(value) != as_json(literal))


def _leaves(value: Any, path: str) -> dict[str, Any]:
    if isinstance(value, Mapping) and value:
        joined: dict[str, Any] = {}
        for key, item in value.items():
            joined |= _leaves(item, f"{path}.{key}" if path else str(key))
        return joined
    return {path: value}
