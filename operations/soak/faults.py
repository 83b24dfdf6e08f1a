"""A store that fails by a script: for campaigns and for tests of what a run survives.

`FaultyStore(store, rules)` wraps another store. Each rule says what happens to the operations that it matches: to every
one, to the n-th, or to a seeded share of them. It pickles, so that workers in other processes meet the same faults; a
copy counts its operations on its own, from where the original stood.
"""

from __future__ import annotations

import enum
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from marin.storage import AlreadyExists, ChecksummedWriter, Page, Store, StoreUnavailable, WrappedStore

T = TypeVar("T")

READS = frozenset({"read", "open", "size", "list"})
WRITES = frozenset({"create", "put", "write", "delete"})
HOLD_SECONDS = 60.0


class Fault(enum.Enum):
    """What happens to an operation.

    `refuse`: the store gives no answer, and nothing happened. `lose_reply`: it happened, and the answer was lost.
    `repeat`: it happens twice, and the first answer counts. `delay`: it happens later. `hold`: it happens when a file
    appears. `drop`: a `put` does not happen, and is said to have. `hide`: a `size` finds nothing.
    `die_before`, `die_after`: the process is killed.
    """

    refuse = "refuse"
    lose_reply = "lose reply"
    repeat = "repeat"
    delay = "delay"
    hold = "hold"
    drop = "drop"
    hide = "hide"
    die_before = "die before"
    die_after = "die after"


@dataclass(frozen=True)
class Rule:
    """A fault, and the operations that it strikes: of these `kinds`, on keys that begin with `keys`.

    `at`: only the n-th of them, from 1. `after`: only those behind the n-th. `chance`: a share of them, drawn from
    `seed`. `seconds` is how long a delay lasts, `until` the file that a held operation waits for.
    """

    fault: Fault
    kinds: frozenset[str] = READS | WRITES
    keys: str = ""
    at: int | None = None
    after: int = 0
    chance: float = 1.0
    seed: int = 0
    seconds: float = 0.01
    until: str = ""

    def __post_init__(self) -> None:
        unknown = self.kinds - READS - WRITES
        if unknown:
            raise ValueError(f"kinds are of {sorted(READS | WRITES)}, got {sorted(unknown)}")
        only = {Fault.drop: {"put"}, Fault.hide: {"size"}}.get(self.fault, READS | WRITES)
        if not self.kinds <= only:
            raise ValueError(f"{self.fault.value} is for {sorted(only)}, got {sorted(self.kinds)}")

    def matches(self, kind: str, key: str) -> bool:
        """Whether an operation counts for this rule."""
        return kind in self.kinds and key.startswith(self.keys)

    def strikes(self, number: int) -> bool:
        """Whether the n-th operation that counts is struck."""
        if number <= self.after or (self.at is not None and number != self.at):
            return False
        return self.chance >= 1.0 or random.Random(f"{self.seed}/{number}").random() < self.chance


class FaultyStore(WrappedStore):
    """Another store behind a script of faults. `counts` holds how many operations each rule has matched."""

    def __init__(self, store: Store, rules: Sequence[Rule]) -> None:
        super().__init__(store)
        self.rules = tuple(rules)
        self.counts = [0] * len(self.rules)
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def _struck(self, kind: str, key: str) -> list[Rule]:
        struck = []
        with self._lock:
            for index, rule in enumerate(self.rules):
                if rule.matches(kind, key):
                    self.counts[index] += 1
                    if rule.strikes(self.counts[index]):
                        struck.append(rule)
        return struck

    @contextmanager
    def _faults(self, kind: str, key: str) -> Iterator[set[Fault]]:
        """The faults around one operation; the block does it, twice if told so."""
        rules = self._struck(kind, key)
        faults = {rule.fault for rule in rules}
        for rule in rules:
            if rule.fault is Fault.delay:
                time.sleep(rule.seconds)
            if rule.fault is Fault.hold:
                _wait_for(Path(rule.until))
        if Fault.die_before in faults:
            die()
        if Fault.refuse in faults:
            raise StoreUnavailable(f"a fault by script: {kind} {key} was not answered")
        yield faults
        if Fault.die_after in faults:
            die()
        if Fault.lose_reply in faults:
            raise StoreUnavailable(f"a fault by script: the answer to {kind} {key} was lost")

    def around(self, kind: str, key: str, operation: Callable[[], T]) -> T:
        with self._faults(kind, key):
            return operation()

    def create(self, key: str, data: bytes) -> None:
        with self._faults("create", key) as faults:
            self.store.create(key, data)
            if Fault.repeat in faults:
                with suppress(AlreadyExists):
                    self.store.create(key, data)

    def put(self, key: str, data: bytes) -> None:
        with self._faults("put", key) as faults:
            if Fault.drop in faults:
                return
            self.store.put(key, data)
            if Fault.repeat in faults:
                self.store.put(key, data)

    def writer(self, key: str) -> ChecksummedWriter:
        inner = self.store.writer(key)
        return ChecksummedWriter(cast(BinaryIO, inner), _FaultyCommit(self, key, inner))

    def size(self, key: str) -> int | None:
        with self._faults("size", key) as faults:
            return None if Fault.hide in faults else self.store.size(key)

    def pages(self, prefix: str = "") -> Iterator[Page]:
        yield self.list(prefix)

    def delete(self, key: str) -> None:
        with self._faults("delete", key) as faults:
            self.store.delete(key)
            if Fault.repeat in faults:
                self.store.delete(key)


class _FaultyCommit:
    """The end of a stream is the write: before it there is no object."""

    def __init__(self, store: FaultyStore, key: str, inner: ChecksummedWriter) -> None:
        self.store = store
        self.key = key
        self.inner = inner

    def finish(self) -> None:
        with self.store._faults("write", self.key):
            self.inner.close()

    def discard(self) -> None:
        self.inner.abandon()


def die() -> None:
    """End this process at once, as a power cut would."""
    os.kill(os.getpid(), signal.SIGKILL)


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + HOLD_SECONDS
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"an operation was held until {path} appears, and it did not in {HOLD_SECONDS} s")
        time.sleep(0.01)
