"""Pins: runs and steps that are kept, whatever else goes. Objects under `_pins/`, made and removed by people."""

from __future__ import annotations

import dataclasses
import json
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass

from marin.execution import layout
from marin.execution.failures import StepError
from marin.execution.planning.index import StepKey
from marin.execution.reasons.past_runs import PLAN
from marin.storage import AlreadyExists, MissingObject, Store

STEP = "step"
RUN = "run"


@dataclass(frozen=True)
class Pin:
    """What is kept: the step `name` (flat) with its short `identity`, or the run `name` with an empty `identity`."""

    kind: str
    name: str
    identity: str
    note: str
    host: str
    time: float

    def __post_init__(self) -> None:
        if self.kind not in (STEP, RUN) or not isinstance(self.name, str) or not isinstance(self.identity, str):
            raise ValueError(f"kind is {STEP!r} or {RUN!r} and name and identity are texts, got {self}")

    @property
    def key(self) -> str:
        """Where the pin lies."""
        return f"{layout.PINS}/{self.kind}-{self.name}{f'-{self.identity}' if self.identity else ''}.json"

    @property
    def display(self) -> str:
        """What is pinned, as people call it."""
        return f"run {self.name}" if self.kind == RUN else f"{layout.unflat(self.name)}-{self.identity}"

    @property
    def argument(self) -> str:
        """What `marin unpin` is to be given."""
        return self.name if self.kind == RUN else self.display

    @property
    def text(self) -> str:
        """What is pinned, and why."""
        return f"{self.display}{f': {self.note}' if self.note else ''}"


def pin_of_step(step: StepKey, note: str = "") -> Pin:
    """A pin of a step, not yet in the store."""
    return Pin(STEP, *step, note, socket.gethostname(), round(time.time(), 3))


def pin_of_run(run: str, note: str = "") -> Pin:
    """A pin of a run, not yet in the store: everything that its plan holds."""
    return Pin(RUN, run, "", note, socket.gethostname(), round(time.time(), 3))


def add_pin(store: Store, pin: Pin) -> bool:
    """Keep a pin; False when the same thing is pinned already."""
    try:
        store.create(pin.key, json.dumps(dataclasses.asdict(pin), ensure_ascii=False).encode())
    except AlreadyExists:
        return False
    return True


def remove_pin(store: Store, pin: Pin) -> bool:
    """Remove the pin of the same thing; False when there is none."""
    if not store.exists(pin.key):
        return False
    store.delete(pin.key)
    return True


def all_pins(store: Store) -> list[Pin]:
    """Every pin of a prefix; `StepError` naming one that cannot be read, since what it keeps is then unknown."""
    found = (read_pin(store, info.key) for info in store.list(layout.PINS))
    return [pin for pin in found if pin is not None]


def read_pin(store: Store, key: str) -> Pin | None:
    """The pin that lies under a key; None when it was removed meanwhile."""
    try:
        return Pin(**json.loads(store.read(key)))
    except MissingObject:
        return None
    except (ValueError, TypeError) as error:
        raise StepError(
            f"the pin {store.url_of(key)} is damaged ({error}); remove it, and pin again what it should keep"
        ) from error


def planned_by(store: Store, run: str) -> list[StepKey]:
    """The steps of a run's plan; none when the run ended before it wrote one. `StepError` when it is damaged.

    Looks at nothing else in the plan, which every release may have written in its own way.
    """
    key = f"{layout.run_folder(run)}/{PLAN}"
    try:
        steps = json.loads(store.read(key))["steps"]
        return [(layout.flat(step["name"]), layout.short(step["identity"])) for step in steps]
    except MissingObject:
        return []
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StepError(
            f"the plan {store.url_of(key)} is damaged ({type(error).__name__}: {error}), so what the run needs is not "
            "known; remove the run's folder when it is of no use any more"
        ) from error


def pins_over(store: Store, step: StepKey) -> Iterator[Pin]:
    """The pins that keep a step: its own, and those of runs whose plan holds it."""
    for pin in all_pins(store):
        if (pin.name, pin.identity) == step or (pin.kind == RUN and step in planned_by(store, pin.name)):
            yield pin
