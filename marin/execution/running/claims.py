"""Who runs a step: claims by create-if-absent, with a new epoch for each holder.

No run deletes a claim; a collection does, with all of its step. It ends with the record of its generation; a holder
that gave up adds `<epoch>.released`; one that died is noticed, and the next epoch is created over it. The old holder
can then only litter: it writes into its own attempt and its own epoch's state, and every finish mark checks that no
newer epoch exists.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marin.execution import layout
from marin.execution.failures import LeaseLost
from marin.storage import AlreadyExists, MissingObject, Store

MIN_PERIOD_SECONDS = 0.5
MAX_PERIOD_SECONDS = 30.0
MISSED_BEATS = 3
"""Heartbeats that a holder may miss before it counts as gone, however short our own patience is."""


@dataclass(frozen=True)
class Holder:
    """The process behind a claim. The process fields tell, on the same host, whether it still lives."""

    run: str
    host: str
    boot: str
    pid_namespace: str
    pid: int
    started: str


@dataclass(frozen=True)
class Claim:
    """A held claim: step name, identity, epoch, the record generation it is to make, and where its state lies.

    `first_epoch` and `folder` are those of the first claim of the generation: a redo starts without the state of
    earlier generations, and a step that got another label goes on from the state that lies under its earlier one.
    """

    name: str
    identity: str
    epoch: int
    generation: int = 1
    folder: str = ""
    first_epoch: int = 1

    @property
    def key(self) -> str:
        """Where the claim lies."""
        return layout.claim_key(self.name, self.identity, self.epoch)


def process_start(pid: int) -> str | None:
    """The kernel's start time of a process, or None when it is gone (or the system has no /proc)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def this_holder(run: str) -> Holder:
    """This process as a holder."""
    return Holder(
        run=run,
        host=socket.gethostname(),
        boot=_read_text("/proc/sys/kernel/random/boot_id"),
        pid_namespace=_pid_namespace(),
        pid=os.getpid(),
        started=process_start(os.getpid()) or "",
    )


def process_is_gone(holder: Holder) -> bool:
    """True only when the holder ran on this very host and its process no longer exists."""
    same_host = holder.boot != "" and (holder.boot, holder.pid_namespace) == (
        _read_text("/proc/sys/kernel/random/boot_id"),
        _pid_namespace(),
    )
    return same_host and process_start(holder.pid) != holder.started


@dataclass(frozen=True)
class ClaimState:
    """The newest claim on a step, if any: `since` in seconds since 1970 by the holder's clock, for people only."""

    epoch: int
    holder: Holder | None
    released: bool
    generation: int = 0
    folder: str = ""
    first_epoch: int = 1
    since: float = 0.0


def claim_bytes(claim: Claim, holder: Holder) -> bytes:
    """A claim as it lies in the store."""
    body = {
        **vars(holder),
        "generation": claim.generation,
        "folder": claim.folder,
        "first_epoch": claim.first_epoch,
        "time": round(time.time(), 3),
    }
    return json.dumps(body).encode()


HOLDER_FIELDS = tuple(field.name for field in dataclasses.fields(Holder))
NOBODY = ClaimState(0, None, True)


def claim_state(store: Store, name: str, identity: str) -> ClaimState:
    """Read the newest claim of a step."""
    folder = layout.claim_folder(name, identity)
    names = {info.key.rpartition("/")[2] for info in store.list(folder)}
    epochs = [int(name.removesuffix(".json")) for name in names if name.endswith(".json")]
    if not epochs:
        return NOBODY
    epoch = max(epochs)
    try:
        body = json.loads(store.read(layout.claim_key(name, identity, epoch)))
    except MissingObject:  # the step was collected a moment ago
        return NOBODY
    return ClaimState(
        epoch,
        Holder(**{field: body[field] for field in HOLDER_FIELDS}),
        f"{epoch:06d}.released" in names,
        body["generation"],
        body["folder"],
        body["first_epoch"],
        body["time"],
    )


def check_lease(store: Store, claim: Claim) -> None:
    """Raise `LeaseLost` when a newer epoch exists. One request: epochs have no gaps."""
    newer = claim.epoch + 1
    if store.exists(layout.claim_key(claim.name, claim.identity, newer)):
        raise LeaseLost(
            f"{claim.name}-{layout.short(claim.identity)} was taken over: epoch {newer} is newer than {claim.epoch}"
        )


@dataclass(frozen=True)
class _Beat:
    """A heartbeat as last seen: its bytes, and when on our own clock they were first seen."""

    data: bytes
    since: float
    period: float


class Claims:
    """Takes and releases the claims of one run, and watches other holders' heartbeats on its own clock."""

    def __init__(self, store: Store, run: str, stale_after: float) -> None:
        self.store = store
        self.holder = this_holder(run)
        self.stale_after = stale_after
        self.period = max(MIN_PERIOD_SECONDS, min(MAX_PERIOD_SECONDS, stale_after / 6))
        self._beats: dict[str, _Beat] = {}

    def take(self, name: str, identity: str, generation: int = 1, folder: str = "") -> Claim | Holder:
        """A claim, or the live holder that has the step.

        A claim for an earlier generation is over: its record is there, or nobody would ask for a later one.
        """
        state = NOBODY
        while True:
            epoch = state.epoch + 1
            goes_on = state.generation == generation
            claim = Claim(
                name,
                identity,
                epoch,
                generation,
                state.folder if goes_on else folder,
                state.first_epoch if goes_on else epoch,
            )
            if self._create(claim):
                return claim
            state = claim_state(self.store, name, identity)
            if state.holder is None or state.released or state.generation < generation:
                continue
            if state.holder == self.holder:  # our own, of which the reply was lost
                return Claim(name, identity, state.epoch, state.generation, state.folder, state.first_epoch)
            if not self._is_stale(state.holder):
                return state.holder

    def _create(self, claim: Claim) -> bool:
        try:
            self.store.create(claim.key, claim_bytes(claim, self.holder))
        except AlreadyExists:
            return False
        return True

    def release(self, claim: Claim) -> None:
        """Say that the holder gave the step up without a record, so that the next one need not wait."""
        with contextlib.suppress(AlreadyExists):
            self.store.create(claim.key.removesuffix(".json") + ".released", b"{}")

    def beat(self, *, last: bool = False) -> None:
        """Show that this run lives; the `last` heartbeat says that it has ended and holds nothing any more."""
        body = {"time": time.time(), "pid": self.holder.pid, "period": self.period, "ended": last}
        self.store.put(layout.beat_key(self.holder.run), json.dumps(body).encode())

    def _is_stale(self, holder: Holder) -> bool:
        """Whether a holder is gone: when its process is, when its run says so, or when its heartbeat stands still.

        The time counts from when we first saw this very heartbeat, on our own clock, and is never less than a few of
        the periods in which the holder says that it writes.
        """
        if process_is_gone(holder):
            return True
        try:
            data = self.store.read(layout.beat_key(holder.run))
        except MissingObject:
            data = b""
        if _said(data, "ended"):
            return True
        seen = self._beats.get(holder.run)
        if seen is None or seen.data != data:
            self._beats[holder.run] = _Beat(data, time.monotonic(), float(_said(data, "period") or 0.0))
            return False
        return time.monotonic() - seen.since > max(self.stale_after, MISSED_BEATS * seen.period)


def _said(beat: bytes, what: str) -> Any:
    """What a heartbeat says of something, or None when it says nothing that can be read."""
    try:
        return json.loads(beat)[what]
    except (ValueError, KeyError, TypeError):
        return None
