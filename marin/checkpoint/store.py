"""Saving and restoring on any number of ranks.

A save writes one file of tensors a rank, the index, the progress, and last, after the lease was checked, the finish
mark. A restore takes the newest checkpoint whose files are all there with the listed size and digest, says why it
skipped newer ones, and compares every name, shape and dtype before it touches a tensor. All ranks take the same
decision or raise the same error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import save as save_distributed

from marin.checkpoint.completeness import FinishMark, FoundCheckpoint, Survey, WrittenFile, log_skipped, survey
from marin.checkpoint.errors import CheckpointError, NotFinite
from marin.checkpoint.files import StoreFiles, StoreWriter
from marin.checkpoint.layout import FINISH_MARK, PROGRESS, ROOT, folder_of
from marin.checkpoint.progress import Progress
from marin.checkpoint.ranks import Ranks, that_travels
from marin.checkpoint.reading import alone_is_meant, digest_fault, load_tensors, opener
from marin.checkpoint.staging import CopyLoadPlanner, CopySavePlanner, HostCopy
from marin.checkpoint.state_folder import StateFolder, is_own
from marin.checkpoint.tensors import first_non_finite
from marin.execution import LeaseLost

logger = logging.getLogger(__name__)


class CheckpointStore:
    """The checkpoints of one run, in its resumable state. Every method but `survey` is called by all ranks together."""

    def __init__(
        self,
        state: StateFolder,
        *,
        check_lease: Callable[[], None],
        ranks: Ranks,
        keep_last: int = 2,
        verify_digests: bool = True,
        root: str = ROOT,
    ) -> None:
        if keep_last < 1:
            raise ValueError(f"keep_last is {keep_last}; at least 1 checkpoint must stay")
        self.state = state
        self.check_lease = check_lease
        self.ranks = ranks
        self.keep_last = keep_last
        self.verify_digests = verify_digests
        self.root = root

    def seen_by(self, ranks: Ranks, root: str = "") -> CheckpointStore:
        """The same run's checkpoints for another group of the same processes, or those below another folder."""
        return CheckpointStore(
            self.state,
            check_lease=self.check_lease,
            ranks=ranks,
            keep_last=self.keep_last,
            verify_digests=self.verify_digests,
            root=root or self.root,
        )

    def survey(self) -> Survey:
        """What lies in the state, complete or not; called by one rank."""
        return survey(self.state, self.root)

    def newest(self) -> FoundCheckpoint | None:
        """The newest complete and undamaged checkpoint, or None; logs why each newer candidate is not it."""
        found = self.ranks.from_first(self._surveyed)
        for candidate in found:
            reason = self.damage(candidate) if self.verify_digests else None
            if reason is None:
                return candidate
            if self.ranks.rank == 0:
                logger.warning("%s is skipped: %s", candidate.describe(), reason)
        return None

    def damage(self, found: FoundCheckpoint) -> str | None:
        """Why the checkpoint cannot be used, None when every file has its digest. The files are divided among the
        ranks.
        """
        reason: str | None = None
        error: BaseException | None = None
        try:
            faults = (digest_fault(self.state.store, found, file) for file in self._own_files(found))
            reason = next((fault for fault in faults if fault is not None), None)
        except Exception as raised:  # and raised again below, on every rank
            error = that_travels(raised)
        told = self.ranks.gather((reason, error))
        for _, carried in told:
            if carried is not None:
                raise carried
        return next((why for why, _ in told if why is not None), None)

    def read_progress(self, found: FoundCheckpoint) -> Progress:
        """The part of a checkpoint that is not tensors."""
        return self.ranks.from_first(lambda: Progress.from_bytes(self.state.store.read(found.keys[PROGRESS])))

    def load(self, found: FoundCheckpoint, tensors: Mapping[str, Tensor] | HostCopy, allow: Sequence[str] = ()) -> None:
        """Fills `tensors`, or the buffers of a copy, in place. Strict: see `check_keys` for what is compared and for
        `allow`.
        """
        copy = tensors if isinstance(tensors, HostCopy) else None
        load_tensors(
            opener(self.state.store, found.keys),
            copy.layout if copy is not None else dict(tensors),  # type: ignore[arg-type]  # no copy, hence a mapping
            where=found.describe(),
            allow=allow,
            group=self.ranks.group,
            planner=CopyLoadPlanner(copy) if copy is not None else None,
        )

    def save(
        self, tensors: Mapping[str, Tensor] | HostCopy, progress: Progress, *, permanent: bool = False
    ) -> FoundCheckpoint:
        """Writes a complete checkpoint after `progress.step` steps and returns where its files lie.

        Refuses tensors that are not finite. What an earlier, interrupted save of the same step left in the own epoch
        is removed first; afterwards rolling checkpoints beyond the newest `keep_last` go.
        """
        copy = tensors if isinstance(tensors, HostCopy) else None
        layout: dict[str, Tensor] = copy.layout if copy is not None else dict(tensors)  # type: ignore[arg-type]
        folder = folder_of(progress.step, self.root)
        values = copy.parts if copy is not None else layout
        bad = [name for name in self.ranks.gather(first_non_finite(values)) if name is not None]
        if bad:
            raise NotFinite(f"step {progress.step} is not saved: {bad[0]} holds a value that is not finite")
        self.ranks.from_first(lambda: self._remove_own(folder))
        files = StoreFiles(write=lambda name: self.state.write(f"{folder}/{name}"))
        with alone_is_meant(self.ranks.group):
            try:
                save_distributed(
                    layout,
                    storage_writer=StoreWriter(files),
                    planner=CopySavePlanner(copy) if copy is not None else None,
                    process_group=self.ranks.group,
                    no_dist=self.ranks.group is None,
                )
            except CheckpointException as error:
                raise _cause(error, progress.step) from error
        self.ranks.from_first(lambda: files.write(PROGRESS, progress.to_bytes()))
        written = [file for of_rank in self.ranks.gather(files.written) for file in of_rank]
        listed = tuple(sorted(written, key=lambda file: file.name))
        mark = FinishMark(step=progress.step, files=listed, permanent=permanent)
        return self.ranks.from_first(lambda: self._finish(folder, mark))

    def clear(self) -> None:
        """Removes every checkpoint of the own epoch below this folder."""
        self.ranks.from_first(lambda: self._remove_own(self.root))

    def _finish(self, folder: str, mark: FinishMark) -> FoundCheckpoint:
        self.check_lease()
        self.state.create(f"{folder}/{FINISH_MARK}", mark.to_bytes())
        now = self.survey()
        for found in now.complete:
            if found.own and found.step == mark.step:
                self._roll(now, mark.step)
                return found
        reasons = [item.reason for item in now.skipped if item.own and folder.endswith(item.folder)]
        raise CheckpointError(
            f"the checkpoint of step {mark.step} is not complete after its save: {'; '.join(reasons) or 'not listed'}"
        )

    def _roll(self, now: Survey, step: int) -> None:
        """Leaves the newest `keep_last` rolling checkpoints of the own epoch up to `step`, and all permanent ones.

        One of a later step was passed over when the run went on from before it, as damaged: it must not push out a
        good one. What earlier epochs left goes once the own epoch has `keep_last` of its own, so that a run that is
        often interrupted does not pile them up. A removal that fails is tried again with the next save.
        """
        rolling = [found for found in now.complete if not found.permanent]
        kept = [found for found in rolling if found.own and found.step <= step][: self.keep_last]
        earlier = len(kept) == self.keep_last
        gone = [list(found.keys.values()) for found in rolling if found not in kept and (found.own or earlier)]
        gone += [list(item.keys) for item in now.skipped if item.own or earlier]
        try:
            for keys in gone:
                self._remove(keys)
        except Exception as error:
            logger.warning("an old checkpoint could not be removed, the next save tries again: %s", error)

    def _remove_own(self, folder: str) -> None:
        """Removes what the own epoch has below `folder`."""
        own: dict[str, list[str]] = {}
        for file in self.state.find(f"{folder}/*"):
            if is_own(self.state, file):
                own.setdefault(file.name.rpartition("/")[0], []).append(file.key)
        for keys in own.values():
            self._remove(keys)

    def _remove(self, keys: Sequence[str]) -> None:
        """The finish mark goes first, so that a kill in between leaves nothing that counts."""
        for key in sorted(keys, key=lambda key: not key.endswith(f"/{FINISH_MARK}")):
            self.state.store.delete(key)

    def _surveyed(self) -> list[FoundCheckpoint]:
        now = self.survey()
        log_skipped(now.skipped)
        return list(now.complete)

    def _own_files(self, found: FoundCheckpoint) -> Sequence[WrittenFile]:
        return found.mark.files[self.ranks.rank :: self.ranks.world_size]


def _cause(error: CheckpointException, step: int) -> Exception:
    """What to raise on every rank for a save that failed on some: a lost lease as such, anything else in words."""
    causes = {rank: failure[0] for rank, failure in sorted(error.failures.items())}
    for cause in causes.values():
        if isinstance(cause, LeaseLost):
            return cause
    told = "; ".join(f"rank {rank}: {type(cause).__name__}: {cause}" for rank, cause in causes.items())
    return CheckpointError(f"the checkpoint of step {step} could not be written: {told}")
