"""How a config field relates to identity, and what a config may hold besides plain values."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import enum
import functools
import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, TypeVar, overload

from marin.execution.artifact import Artifact

T = TypeVar("T")

RUNTIME = "marin.runtime"
ADDED = "marin.added"

_LEAVES = frozenset({str, int, float, bool, bytes, type(None)})


@overload
def runtime(default: T) -> T: ...


@overload
def runtime(*, default_factory: Callable[[], T]) -> T: ...


def runtime(default: Any = dataclasses.MISSING, *, default_factory: Any = dataclasses.MISSING) -> Any:
    """A dataclass field that says how a step runs, never what it makes: workers, batch sizes on a device, log levels.

    It is left out of the step's identity, so changing it reruns nothing.
    """
    return dataclasses.field(default=default, default_factory=default_factory, metadata={RUNTIME: True})


@overload
def added(literal: T, *, since: str) -> T: ...


@overload
def added(literal: Any, *, since: str, default: T) -> T: ...


@overload
def added(literal: Any, *, since: str, default_factory: Callable[[], T]) -> T: ...


def added(
    literal: Any, *, since: str, default: Any = dataclasses.MISSING, default_factory: Any = dataclasses.MISSING
) -> Any:
    """A dataclass field that joined a config after steps had run with it, as of the date or release `since`.

    It is left out of the identity while it equals `literal`, which says how steps ran before the field was there, so
    that earlier records stay valid. The literal stays as it is for ever. Without a `default` it is the default too; a
    default that is chosen later goes beside it, `added("off", since="2026.12", default="on")`, and changes identities.

    The literal consists of plain values, since a config class as literal would follow the defaults of that class: for
    such a field give its fields as a dict, `added({"name": "a", "least": 0.5}, since=…, default=Rule("a", 0.5))`.
    """
    _refuse_moving(literal, since)
    frozen = copy.deepcopy(literal)
    if default is dataclasses.MISSING and default_factory is dataclasses.MISSING:
        if type(frozen).__hash__ is None:  # a list, dict or set: each config gets one of its own
            default_factory = functools.partial(copy.deepcopy, frozen)
        else:
            default = frozen
    return dataclasses.field(default=default, default_factory=default_factory, metadata={ADDED: (frozen, since)})


def refuse_infinite(config: Any, where: str = "") -> None:
    """Raise ValueError for a float field of a dataclass that is infinite or no number; ``where`` comes before its name.

    Comparisons do not catch these: every one with NaN is false.
    """
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{where}{field.name} is {value}; give a finite number")


def _refuse_moving(literal: Any, since: str) -> None:
    if isinstance(literal, Mapping):
        for item in literal.values():
            _refuse_moving(item, since)
    elif isinstance(literal, (list, tuple, set, frozenset)):
        for item in literal:
            _refuse_moving(item, since)
    elif type(literal) not in _LEAVES and not isinstance(literal, (enum.Enum, datetime.date, PurePath)):
        raise TypeError(
            f"added(…, since={since!r}) has a {type(literal).__name__} as its literal, which can change with its "
            "class; give plain values (a dict of its fields), and the object itself as default=…"
        )


@dataclass(frozen=True)
class External:
    """An input from outside the graph. Its `version` is its identity; where it lies is not.

    `version` is what the author vouches for: a release, a date, a digest. `path` is a local path or an fsspec URL of a
    file or a folder, or a pattern. What is there is compared with what an earlier use of this version saw; see
    `marin.execution.running.external`.
    """

    path: str = dataclasses.field(metadata={RUNTIME: True})
    version: str

    def __post_init__(self) -> None:
        if not self.path:
            raise ValueError("External.path is an empty path; name a file, a folder or a pattern")
        if not self.version:
            raise ValueError(f"External.version of {self.path!r} is empty; say which content it is, such as '2026-11'")


def found_in(value: Any, kind: type | tuple[type, ...], path: str = "") -> list[tuple[str, Any]]:
    """(path, object) of every instance of `kind` in a config, at any depth and in runtime fields; not in artifacts."""
    found: list[tuple[str, Any]] = []
    _find(value, kind, path, found)
    return found


@functools.cache
def _shape(cls: type) -> tuple[tuple[str, ...], bool, bool]:
    """Of a type: the fields of a config class, whether it is a mapping, and whether it is a sequence or set.

    Nothing is looked at inside artifacts.
    """
    if issubclass(cls, Artifact):
        return (), False, False
    names = tuple(field.name for field in dataclasses.fields(cls)) if dataclasses.is_dataclass(cls) else ()
    return names, issubclass(cls, Mapping), issubclass(cls, (list, tuple, set, frozenset))


def _find(value: Any, kind: type | tuple[type, ...], path: str, found: list[tuple[str, Any]]) -> None:
    if isinstance(value, kind):
        found.append((path, value))
        return
    cls: type = type(value)
    names, is_mapping, is_sequence = _shape(cls)
    for name in names:
        item = getattr(value, name)
        if type(item) not in _LEAVES:
            _find(item, kind, f"{path}.{name}" if path else name, found)
    if is_mapping:
        for key, item in value.items():
            if type(item) not in _LEAVES:
                _find(item, kind, f"{path}.{key}" if path else str(key), found)
    elif is_sequence:
        for index, item in enumerate(value):
            if type(item) not in _LEAVES:
                _find(item, kind, f"{path}[{index}]", found)


def derive_seed(root: int, name: str) -> int:
    """A 63-bit seed for the purpose `name`, from the one root seed of an experiment."""
    digest = hashlib.sha256(f"{root}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
