"""How a config field relates to identity, and what a config may hold besides plain values."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, overload

T = TypeVar("T")

RUNTIME = "marin.runtime"
ADDED = "marin.added"


@overload
def runtime(default: T) -> T: ...


@overload
def runtime(*, default_factory: Callable[[], T]) -> T: ...


def runtime(default: Any = dataclasses.MISSING, *, default_factory: Any = dataclasses.MISSING) -> Any:
    """A dataclass field that says how a step runs, never what it makes: workers, batch sizes on a device, log levels.

    It is left out of the step's identity, so changing it reruns nothing.
    """
    return dataclasses.field(default=default, default_factory=default_factory, metadata={RUNTIME: True})


def added(default: T, *, since: str) -> T:
    """A field that joined a config after steps had run with it, as of the date or release `since`.

    It is left out of the identity while it equals the literal given here, so that earlier records stay valid. The
    literal is frozen: changing it later changes identities, as it should.
    """
    return dataclasses.field(default=default, metadata={ADDED: (default, since)})


@dataclass(frozen=True)
class External:
    """An input from outside the graph. Its `version` is its identity; where it lies is not.

    `version` is what the author vouches for: a release, a date, a digest.
    """

    path: str = dataclasses.field(metadata={RUNTIME: True})
    version: str


def derive_seed(root: int, name: str) -> int:
    """A 63-bit seed for the purpose `name`, from the one root seed of an experiment."""
    digest = hashlib.sha256(f"{root}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
