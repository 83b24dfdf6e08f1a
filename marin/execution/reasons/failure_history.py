"""Failures as they lie under `_failed/`: history for people, never an answer."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from marin.execution import layout
from marin.execution.failures import StepError
from marin.storage import Store

FAILURE_KEY = re.compile(rf"{layout.FAILED}/(?P<step>[^/]+)/(?P<run>[^/]+)-a(?P<attempt>\d+)\.json")


@dataclass(frozen=True)
class FailureKey:
    """Where a failure lies: the step (flat name, short identity), the run, and the attempt in it."""

    key: str
    name: str
    short: str
    run: str
    attempt: int


def parse_failure_key(key: str) -> FailureKey | None:
    """What the key of a failure says, or None for another key."""
    match = FAILURE_KEY.fullmatch(key)
    if match is None:
        return None
    name, _, short = match["step"].rpartition("-")
    return FailureKey(key, name, short, match["run"], int(match["attempt"]))


@dataclass(frozen=True)
class PastFailure:
    """A failure of a step: what was raised and what led to it, where, and when in seconds since 1970."""

    place: FailureKey
    error: str
    message: str
    trace: str
    node: str
    kind: str
    time: float
    expected: bool
    causes: tuple[str, ...]

    @property
    def line(self) -> str:
        """The cause in one line."""
        first = self.message.splitlines()[0] if self.message else ""
        return f"{self.error}: {first}" if first else self.error


def read_failure(store: Store, place: FailureKey) -> PastFailure:
    """Read a failure; `StepError` when it is damaged."""
    try:
        body: dict[str, Any] = json.loads(store.read(place.key))
        return PastFailure(
            place,
            body["error"],
            body["message"],
            body["trace"],
            body["node"],
            body["kind"],
            float(body["time"]),
            bool(body["expected"]),
            tuple(body.get("causes", ())),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise StepError(f"the failure {place.key} is damaged: {error}") from error


def failures_of(store: Store, name: str, identity: str) -> list[FailureKey]:
    """Every failure of a step, oldest first."""
    found = [parse_failure_key(info.key) for info in store.list(layout.failure_folder(name, identity))]
    return sorted((one for one in found if one is not None), key=lambda one: (one.run, one.attempt))
