"""Saving and restoring on any number of ranks.

A save writes one file of tensors a rank, the index, the progress, and last, after the lease was checked, the finish
mark. A restore takes the newest checkpoint whose files are all there with the listed size and digest, says why it
skipped newer ones, and compares every name, shape and dtype before it touches a tensor. All ranks take the same
decision or raise the same error.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar

import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load as load_distributed
from torch.distributed.checkpoint.state_dict_saver import save as save_distributed

from marin.checkpoint.completeness import (
    FinishMark,
    FoundCheckpoint,
    Survey,
    WrittenFile,
    log_skipped,
    survey,
)
from marin.checkpoint.errors import CheckpointError
from marin.checkpoint.files import StoreFiles, StoreReader, StoreWriter
from marin.checkpoint.keys import TensorForm, check_keys
from marin.checkpoint.layout import FINISH_MARK, PROGRESS, folder_of
from marin.checkpoint.progress import Progress
from marin.checkpoint.state_folder import ObjectStore, StateFolder
from marin.checkpoint.tensors import first_non_finite
from marin.execution import LeaseLost

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """The processes that save and restore together. `group` must take objects on the CPU (gloo); None is one process
    alone.
    """

    rank: int
    world_size: int
    group: dist.ProcessGroup | None

    @classmethod
    def alone(cls) -> Ranks:
        """One process without torch.distributed."""
        return cls(rank=0, world_size=1, group=None)

    def gather(self, value: T) -> list[T]:
        """The value of every rank, on every rank, in order of rank."""
        if self.group is None:
            return [value]
        gathered: list[Any] = [None] * self.world_size
        dist.all_gather_object(gathered, value, group=self.group)
        return gathered

    def from_first(self, make: Callable[[], T]) -> T:
        """What `make` returns or raises on rank 0, on every rank."""
        result: list[Any] = [None, None]
        if self.rank == 0:
            try:
                result[0] = make()
            except Exception as error:  # raised again below, on every rank
                result[1] = _that_travels(error)
        if self.group is not None:
            dist.broadcast_object_list(result, src=0, group=self.group)
        if result[1] is not None:
            raise result[1]
        value: T = result[0]
        return value


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
    ) -> None:
        if keep_last < 1:
            raise ValueError(f"keep_last is {keep_last}; at least 1 checkpoint must stay")
        self.state = state
        self.check_lease = check_lease
        self.ranks = ranks
        self.keep_last = keep_last
        self.verify_digests = verify_digests

    def survey(self) -> Survey:
        """What lies in the state, complete or not; called by one rank."""
        return survey(self.state)

    def newest(self) -> FoundCheckpoint | None:
        """The newest complete and undamaged checkpoint, or None; logs why each newer candidate is not it."""
        found = self.ranks.from_first(self._surveyed)
        for candidate in found:
            reason = self._damage(candidate)
            if reason is None:
                return candidate
            if self.ranks.rank == 0:
                logger.warning("%s is skipped: %s", candidate.describe(), reason)
        return None

    def read_progress(self, found: FoundCheckpoint) -> Progress:
        """The part of a checkpoint that is not tensors."""
        return self.ranks.from_first(lambda: Progress.from_bytes(self.state.store.read(found.keys[PROGRESS])))

    def load(self, found: FoundCheckpoint, tensors: Mapping[str, Tensor], allow: Sequence[str] = ()) -> None:
        """Fills `tensors` in place. Strict: see `check_keys` for what is compared and for `allow`."""
        load_tensors(
            _opener(self.state.store, found.keys), tensors, where=found.describe(), allow=allow, group=self.ranks.group
        )

    def save(self, tensors: Mapping[str, Tensor], progress: Progress) -> FoundCheckpoint:
        """Writes a complete checkpoint after `progress.step` steps and returns where its files lie.

        Refuses tensors that are not finite. What an earlier, interrupted save of the same step left in the own epoch
        is removed first; afterwards the own epoch's older checkpoints beyond `keep_last` go.
        """
        folder = folder_of(progress.step)
        bad = [name for name in self.ranks.gather(first_non_finite(tensors)) if name is not None]
        if bad:
            raise CheckpointError(f"step {progress.step} is not saved: {bad[0]} holds a value that is not finite")
        self.ranks.from_first(lambda: self._remove_own(folder))
        files = StoreFiles(write=lambda name: self.state.write(f"{folder}/{name}"))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            try:
                save_distributed(
                    dict(tensors),
                    storage_writer=StoreWriter(files),
                    process_group=self.ranks.group,
                    no_dist=self.ranks.group is None,
                )
            except CheckpointException as error:
                raise _cause(error, progress.step) from error
        if self.ranks.rank == 0:
            with files.create_stream(PROGRESS, "wb") as stream:
                stream.write(progress.to_bytes())
        written = [file for of_rank in self.ranks.gather(files.written) for file in of_rank]
        mark = FinishMark(step=progress.step, files=tuple(sorted(written, key=lambda file: file.name)))
        return self.ranks.from_first(lambda: self._finish(folder, mark))

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
        """Leaves of the own epoch the newest `keep_last` checkpoints up to `step` alone.

        One of a later step was passed over when the run went on from before it, as damaged: it must not push out a
        good one.
        """
        own = [found for found in now.complete if found.own]
        kept = [found for found in own if found.step <= step][: self.keep_last]
        for found in own:
            if found not in kept:
                self._remove(list(found.keys.values()))
        for item in now.skipped:
            if item.own:
                self._remove(list(item.keys))

    def _remove_own(self, folder: str) -> None:
        now = self.survey()
        stale = [list(found.keys.values()) for found in now.complete if found.own and folder_of(found.step) == folder]
        stale += [list(item.keys) for item in now.skipped if item.own and folder.endswith(f"/{item.folder}")]
        for keys in stale:
            self._remove(keys)

    def _remove(self, keys: Sequence[str]) -> None:
        """The finish mark goes first, so that a kill in between leaves nothing that counts."""
        for key in sorted(keys, key=lambda key: not key.endswith(f"/{FINISH_MARK}")):
            self.state.store.delete(key)

    def _surveyed(self) -> list[FoundCheckpoint]:
        now = self.survey()
        log_skipped(now.skipped)
        return list(now.complete)

    def _damage(self, found: FoundCheckpoint) -> str | None:
        """Why the checkpoint cannot be used, None when it can. The files are divided among the ranks."""
        if not self.verify_digests:
            return None
        own = found.mark.files[self.ranks.rank :: self.ranks.world_size]
        reasons = [_digest_fault(self.state.store, found, file) for file in own]
        faults = [reason for of_rank in self.ranks.gather(reasons) for reason in of_rank if reason is not None]
        return faults[0] if faults else None


def load_tensors(
    read: Callable[[str], BinaryIO],
    tensors: Mapping[str, Tensor],
    *,
    where: str,
    allow: Sequence[str] = (),
    prefix: str = "",
    group: dist.ProcessGroup | None = None,
) -> None:
    """Fills `tensors` in place from the checkpoint whose files `read` opens.

    Only stored names that start with `prefix` are considered; among them the comparison is strict (`check_keys`). On
    one process without `group`, otherwise by all ranks of it together.
    """
    started = time.monotonic()
    stored = {name: form for name, form in stored_forms(read).items() if name.startswith(prefix)}
    wanted = {name: TensorForm(tuple(tensor.shape), str(tensor.dtype)) for name, tensor in tensors.items()}
    names = check_keys(stored, wanted, where, allow)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is")
        load_distributed(
            {name: tensors[name] for name in names},
            storage_reader=StoreReader(StoreFiles(read=read)),
            process_group=group,
            no_dist=group is None,
        )
    logger.info("read %d tensors of the %s in %.2f s", len(names), where, time.monotonic() - started)


def stored_forms(read: Callable[[str], BinaryIO]) -> dict[str, TensorForm]:
    """Shape and dtype of each tensor that a checkpoint holds, from its index."""
    metadata: Metadata = StoreReader(StoreFiles(read=read)).read_metadata()
    forms = {}
    for name, stored in metadata.state_dict_metadata.items():
        if isinstance(stored, TensorStorageMetadata):
            forms[name] = TensorForm(tuple(stored.size), str(stored.properties.dtype))
        else:
            forms[name] = TensorForm((), "object")
    return forms


def _that_travels(error: Exception) -> Exception:
    """The error, or its words where the object cannot be sent to other ranks (as with some store clients)."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return CheckpointError(f"{type(error).__name__}: {error}")
    return error


def _cause(error: CheckpointException, step: int) -> Exception:
    """What to raise on every rank for a save that failed on some: a lost lease as such, anything else in words."""
    causes = {rank: failure[0] for rank, failure in sorted(error.failures.items())}
    for cause in causes.values():
        if isinstance(cause, LeaseLost):
            return cause
    told = "; ".join(f"rank {rank}: {type(cause).__name__}: {cause}" for rank, cause in causes.items())
    return CheckpointError(f"the checkpoint of step {step} could not be written: {told}")


def _opener(store: ObjectStore, keys: Mapping[str, str]) -> Callable[[str], BinaryIO]:
    return lambda name: store.open(keys[name])


def _digest_fault(store: ObjectStore, found: FoundCheckpoint, file: WrittenFile) -> str | None:
    digest = hashlib.sha256()
    try:
        with store.open(found.keys[file.name]) as stream:
            while block := stream.read(1 << 22):
                digest.update(block)
    except OSError as error:
        return f"its file {file.name} cannot be read: {error}"
    if digest.hexdigest() != file.sha256:
        return f"its file {file.name} does not have the sha256 of the finish mark: it was damaged after it was written"
    return None
