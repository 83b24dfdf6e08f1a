"""Holding a step without running it, while its bytes are removed or brought in.

A custodian takes the step's next claim as a run does, with a heartbeat of its own: a run that wants the step waits for
it, and a zombie of an earlier holder loses its lease. It claims the generation after the newest record, which is what
any run that wants the step would have to make.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from marin.execution import layout
from marin.execution.failures import StepError
from marin.execution.running.claims import Claim, Claims, Holder, process_is_gone
from marin.execution.running.runlog import new_run
from marin.execution.running.watch import Heartbeat
from marin.execution.upkeep.removal import remove_empty_folders
from marin.storage import MissingObject, Store

STALE_SECONDS = 90.0
POLL_SECONDS = 1.0


class Custodian:
    """Takes steps into custody and lets them go again. A context manager: its heartbeat lasts as long as the block."""

    def __init__(self, store: Store, stale_after: float = STALE_SECONDS) -> None:
        self.store = store
        self.run = new_run()
        self.claims = Claims(store, self.run, stale_after)
        self._heartbeat = Heartbeat(self.claims)
        self._held: dict[str, Claim] = {}

    def __enter__(self) -> Self:
        self._heartbeat.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for claim in list(self._held.values()):
                self.release(claim)
        finally:
            self._heartbeat.stop()
        self.store.delete(layout.beat_key(self.run))
        remove_empty_folders(self.store, [layout.run_folder(self.run)])

    def take(self, name: str, identity: str, generation: int, folder: str) -> Claim | Holder:
        """The step's claim, or its live holder. `generation` is the one after the newest record's.

        `folder` is the step's: a run that claims the same generation later goes on there.

        A holder on another host whose process may be dead is taken over once its heartbeat was seen to stand still,
        so it may have to be asked for more than once.
        """
        taken = self.claims.take(name, identity, generation, folder)
        if isinstance(taken, Claim):
            self._held[taken.key] = taken
        return taken

    def release(self, claim: Claim) -> None:
        """Let a step go."""
        self.claims.release(claim)
        self._held.pop(claim.key, None)

    def forget(self, claim: Claim) -> None:
        """Count a claim as over: its record is there, or its object was removed."""
        self._held.pop(claim.key, None)

    @contextlib.contextmanager
    def held(self, name: str, identity: str, generation: int, folder: str) -> Iterator[Claim]:
        """Hold one step for a block. Raises `StepError` naming the run that holds it and lives.

        Waits for as long as it takes to see that a silent holder is gone.
        """
        taken = self.take(name, identity, generation, folder)
        seen = self.beat_of(taken) if isinstance(taken, Holder) else b""
        while isinstance(taken, Holder):
            if self.shows_life(taken, seen):
                display = f"{layout.unflat(layout.flat(name))}-{layout.short(identity)}"
                raise StepError(
                    f"{display} is held by run {taken.run} on {taken.host} (pid {taken.pid}), which lives; wait "
                    "until it has ended, or end it"
                )
            time.sleep(POLL_SECONDS)
            taken = self.take(name, identity, generation, folder)
        try:
            yield taken
        finally:
            if taken.key in self._held:
                self.release(taken)

    def shows_life(self, holder: Holder, seen: bytes) -> bool:
        """Whether a holder is known to live: its process is there on this host, or its heartbeat is not as `seen`."""
        own = self.claims.holder
        is_here = (holder.boot, holder.pid_namespace) == (own.boot, own.pid_namespace)
        return (is_here and not process_is_gone(holder)) or self.beat_of(holder) != seen

    def beat_of(self, holder: Holder) -> bytes:
        """A holder's heartbeat as it is now; nothing when there is none."""
        try:
            return self.store.read(layout.beat_key(holder.run))
        except MissingObject:
            return b""
