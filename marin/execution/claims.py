"""Who runs a step: claims by create-if-absent, with a new epoch for each holder.

A claim is never deleted. A holder that ended cleanly adds `<epoch>.released`; one that died is noticed and the next
epoch is created over it. The old holder can then only litter: it writes into its own attempt and its own epoch's
state, and every finish mark checks that no newer epoch exists.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from marin.execution import layout
from marin.execution.failures import LeaseLost
from marin.storage import AlreadyExists, MissingObject, Store


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
    """A held claim: step name, identity, epoch."""

    name: str
    identity: str
    epoch: int

    @property
    def folder(self) -> str:
        """Where the claims of this step lie."""
        return layout.claim_folder(self.name, self.identity)


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
    """The newest claim on a step, if any."""

    epoch: int
    holder: Holder | None
    released: bool


def claim_state(store: Store, name: str, identity: str) -> ClaimState:
    """Read the newest claim of a step."""
    folder = layout.claim_folder(name, identity)
    names = {info.key.rpartition("/")[2] for info in store.list(folder)}
    epochs = [int(name.removesuffix(".json")) for name in names if name.endswith(".json")]
    if not epochs:
        return ClaimState(0, None, True)
    epoch = max(epochs)
    holder = Holder(**json.loads(store.read(f"{folder}/{epoch:06d}.json")))
    return ClaimState(epoch, holder, f"{epoch:06d}.released" in names)


def newest_epoch(store: Store, claim: Claim) -> int:
    """The highest epoch claimed so far."""
    names = [info.key.rpartition("/")[2] for info in store.list(claim.folder)]
    return max((int(name.removesuffix(".json")) for name in names if name.endswith(".json")), default=0)


def check_lease(store: Store, claim: Claim) -> None:
    """Raise `LeaseLost` when a newer epoch exists."""
    newest = newest_epoch(store, claim)
    if newest > claim.epoch:
        raise LeaseLost(
            f"{claim.name}-{layout.short(claim.identity)} was taken over: epoch {newest} is newer than {claim.epoch}"
        )


class Claims:
    """Takes and releases the claims of one run, and watches other holders' heartbeats on its own clock."""

    def __init__(self, store: Store, run: str, stale_after: float) -> None:
        self.store = store
        self.holder = this_holder(run)
        self.stale_after = stale_after
        self._beats: dict[str, tuple[bytes, float]] = {}

    def take(self, name: str, identity: str) -> Claim | Holder:
        """A claim, or the live holder that has the step."""
        while True:
            state = claim_state(self.store, name, identity)
            if state.holder is not None and not state.released:
                if state.holder == self.holder:  # our own, of which the reply was lost
                    return Claim(name, identity, state.epoch)
                if not self._is_stale(state.holder):
                    return state.holder
            claim = Claim(name, identity, state.epoch + 1)
            try:
                self.store.create(
                    f"{claim.folder}/{claim.epoch:06d}.json", json.dumps(dataclasses.asdict(self.holder)).encode()
                )
            except AlreadyExists:
                continue
            return claim

    def release(self, claim: Claim) -> None:
        """Say that the holder is done with the step, however it ended."""
        try:
            self.store.create(f"{claim.folder}/{claim.epoch:06d}.released", b"{}")
        except AlreadyExists:
            return

    def beat(self) -> None:
        """Show that this run lives."""
        key = f"{layout.run_folder(self.holder.run)}/beat"
        self.store.put(key, json.dumps({"time": time.time(), "pid": self.holder.pid}).encode())

    def _is_stale(self, holder: Holder) -> bool:
        if process_is_gone(holder):
            return True
        try:
            beat = self.store.read(f"{layout.run_folder(holder.run)}/beat")
        except MissingObject:
            beat = b""
        seen, since = self._beats.get(holder.run, (None, 0.0))
        if seen != beat:
            self._beats[holder.run] = (beat, time.monotonic())
            return False
        return time.monotonic() - since > self.stale_after
