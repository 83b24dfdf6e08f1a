"""One save at a time, written by a thread while training goes on, and tried again when the store is in trouble.

A thread makes a single attempt, over a process group of its own, and decides nothing. Everything else (that an
attempt ended, that it is to be repeated, that it is given up) the ranks agree on in `poll`, by the clock of rank 0, at
a border of steps. So no rank ever waits in a collective that another one does not enter.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from marin.checkpoint.completeness import FoundCheckpoint
from marin.checkpoint.config import CheckpointPolicy
from marin.checkpoint.errors import CheckpointError, KeyMismatch, NotFinite
from marin.checkpoint.progress import Progress
from marin.checkpoint.ranks import Ranks, that_travels
from marin.checkpoint.rehearsal import RehearsalFailed, read_back
from marin.checkpoint.staging import HostCopy
from marin.checkpoint.store import CheckpointStore
from marin.execution import LeaseLost
from marin.storage import StoreError

logger = logging.getLogger(__name__)

LONGEST_PAUSE_SECONDS = 300.0
LOOK_SECONDS = 0.02
"""How long a rank that has nothing else to do waits between two looks at an attempt."""
MAY_PASS = (OSError, StoreError, CheckpointError, RuntimeError)
"""What a store, a disk or a connection in trouble raises; anything else is a fault of the program."""
FATAL = (LeaseLost, NotFinite, RehearsalFailed, KeyMismatch)
"""What another attempt would meet again."""


@dataclass(frozen=True)
class Saved:
    """A save that is complete."""

    found: FoundCheckpoint
    seconds: float
    """From the start of the attempt that succeeded to its end."""
    attempts: int


@dataclass(frozen=True)
class Failed:
    """An attempt that failed and will be repeated."""

    step: int
    reason: str
    attempts: int
    pause_seconds: float


@dataclass(frozen=True)
class News:
    """What the ranks agreed on in one poll. `due`: whether rank 0's clock says so."""

    due: bool
    event: Saved | Failed | None = None


@dataclass
class _Save:
    """A state that is on its way."""

    progress: Progress
    permanent: bool
    before: Callable[[], None]
    attempts: int = 0
    retry_at: float = 0.0
    found: FoundCheckpoint | None = None
    """Once it is complete; it may have to be read back still."""
    digests: dict[str, str] = field(default_factory=dict)


class _Attempt(threading.Thread):
    """One try. `found` or `error` is set at its end."""

    def __init__(self, write: Callable[[], FoundCheckpoint]) -> None:
        super().__init__(name="marin-checkpoint", daemon=True)
        self._write = write
        self.found: FoundCheckpoint | None = None
        self.error: BaseException | None = None
        self.started = time.monotonic()
        self.seconds = 0.0

    def run(self) -> None:
        try:
            self.found = self._write()
        except BaseException as error:  # told by the next poll, on every rank
            self.error = error
        self.seconds = time.monotonic() - self.started


class BackgroundSaver:
    """Saves one state after another into `store`. All ranks call every method but `close` together.

    `background` are the same ranks over a group of their own. `read_back_first`: the first checkpoint is read back and
    compared before it is told as saved.
    """

    def __init__(
        self,
        store: CheckpointStore,
        background: Ranks,
        policy: CheckpointPolicy,
        *,
        read_back_first: bool,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.copy = HostCopy()
        self._ranks = store.ranks
        self._store = store.seen_by(background)
        self._policy = policy
        self._read_back = read_back_first
        self._now = now
        self._save: _Save | None = None
        self._attempt: _Attempt | None = None
        self._failing_since: float | None = None

    @property
    def writing(self) -> bool:
        """Whether an attempt is under way that no poll has seen the end of."""
        return self._attempt is not None

    @property
    def busy(self) -> bool:
        """Whether a state is being written or waits for another attempt."""
        return self._save is not None

    def begin(
        self, tensors: dict[str, Tensor], progress: Progress, *, permanent: bool, before: Callable[[], None]
    ) -> float:
        """Copies the state and starts to write it; returns the seconds that the copy took.

        `before` is called by the thread of rank 0 ahead of the tensors. A state that waits for another attempt is
        replaced; when that was to be permanent, this one becomes it.
        """
        if self._attempt is not None:
            raise ValueError(
                f"step {progress.step} is to be saved while another save is being written; settle it first"
            )
        if self._save is not None and self._ranks.rank == 0:
            logger.warning("step %d was not saved; step %d takes its place", self._save.progress.step, progress.step)
        permanent |= self._save is not None and self._save.permanent
        seconds = self.copy.take(tensors)
        self._save = _Save(progress, permanent, before)
        self._start(self._save)
        return seconds

    def poll(self, *, due: bool = False, past_limit: bool = False) -> News:
        """What became of the save, agreed over the ranks in one small collective.

        `due` is what rank 0 wants all to know. Raises on every rank the same error when a save failed for good: a lost
        lease, values that are not finite, no success for `give_up_minutes`, or none and `past_limit` on rank 0.
        """
        attempt, now, first = self._attempt, self._now(), self._ranks.rank == 0
        waits = self._save is not None and attempt is None
        flags = (
            first and due,
            attempt is not None and attempt.is_alive(),
            attempt is not None and attempt.error is not None,
            first and waits and self._save is not None and now >= self._save.retry_at,
            first and waits and (past_limit or self._given_up(now)),
        )
        due, running, failed, again, ended = self._ranks.any_of(flags)
        if self._save is None:
            return News(due)
        if attempt is not None:
            if running:
                return News(due)
            self._attempt = None
            return News(due, self._end(self._save, attempt, failed))
        if ended:
            raise CheckpointError(
                f"step {self._save.progress.step} could not be saved in {self._save.attempts} attempts, and no save "
                f"succeeded since; see the log for the reasons (checkpoints.give_up_minutes is "
                f"{self._policy.give_up_minutes})"
            )
        if again:
            self._start(self._save)
        return News(due)

    def pause(self) -> None:
        """Waits a moment for the attempt, or for the time of the next one."""
        if self._attempt is not None:
            self._attempt.join(LOOK_SECONDS)
        else:
            time.sleep(LOOK_SECONDS)

    def close(self, grace_seconds: float) -> None:
        """Waits for an attempt under way, at most so long. No collective: other ranks may not get here."""
        if self._attempt is not None:
            self._attempt.join(grace_seconds)
            if self._attempt.is_alive():
                logger.warning("a save is left unfinished after %.0f s; it does not count", grace_seconds)

    def _start(self, save: _Save) -> None:
        save.attempts += 1
        self._attempt = _Attempt(lambda: self._write(save))
        self._attempt.start()

    def _write(self, save: _Save) -> FoundCheckpoint:
        """In the thread. What an earlier attempt completed is not written again: reading it back spoilt the copy."""
        store = self._store
        if not all(store.ranks.gather(save.found is not None)):
            store.ranks.from_first(save.before)
            save.digests = self.copy.digests() if self._read_back else {}
            save.found = store.save(self.copy, save.progress, permanent=save.permanent)
        assert save.found is not None
        if self._read_back:
            read_back(store, save.found, self.copy, save.digests)
        return save.found

    def _end(self, save: _Save, attempt: _Attempt, failed: bool) -> Saved | Failed:
        if not failed:
            assert attempt.found is not None
            self._save, self._failing_since, self._read_back = None, None, False
            return Saved(attempt.found, attempt.seconds, save.attempts)
        error = self._agreed(attempt.error)
        if isinstance(error, FATAL) or not isinstance(error, MAY_PASS):
            raise error
        now = self._now()
        self._failing_since = now if self._failing_since is None else self._failing_since
        pause = min(LONGEST_PAUSE_SECONDS, self._policy.retry_seconds * 2.0 ** (save.attempts - 1))
        save.retry_at = now + pause
        reason = str(error) or type(error).__name__
        return Failed(save.progress.step, reason, save.attempts, pause)

    def _agreed(self, error: BaseException | None) -> BaseException:
        """One error for all ranks: what cannot be repeated before anything else, then by rank."""
        told = [e for e in self._ranks.gather(that_travels(error) if error is not None else None) if e is not None]
        return next((e for e in told if isinstance(e, FATAL)), told[0])

    def _given_up(self, now: float) -> bool:
        minutes = self._policy.give_up_minutes
        return minutes is not None and self._failing_since is not None and now - self._failing_since >= minutes * 60
