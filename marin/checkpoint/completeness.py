"""Which checkpoints count: the finish mark and the survey of what lies in the resumable state."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marin.checkpoint.layout import FINISH_MARK, PROGRESS, ROOT, TENSOR_INDEX, step_of
from marin.checkpoint.state_folder import FoundFile, StateFolder, is_own

logger = logging.getLogger(__name__)

FORMAT = 1


@dataclass(frozen=True)
class WrittenFile:
    """One file of a checkpoint as it was written: name inside the checkpoint, bytes, sha256 in hex."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class FinishMark:
    """The last thing written of a checkpoint: its step and every file that it consists of."""

    step: int
    files: tuple[WrittenFile, ...]
    permanent: bool = False
    """Whether it stays for ever, as a point to fork from."""

    def to_bytes(self) -> bytes:
        """The mark as an indented JSON object."""
        files = [{"name": file.name, "size": file.size, "sha256": file.sha256} for file in self.files]
        content = {"format": FORMAT, "step": self.step, "permanent": self.permanent, "files": files}
        return json.dumps(content, indent=1).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> FinishMark:
        """Inverse of `to_bytes`; raises ValueError for anything else."""
        try:
            parsed: dict[str, Any] = json.loads(data)
            if parsed["format"] != FORMAT:
                raise ValueError(f"format {parsed['format']!r} is not {FORMAT}")
            files = tuple(WrittenFile(str(f["name"]), int(f["size"]), str(f["sha256"])) for f in parsed["files"])
            return cls(step=int(parsed["step"]), files=files, permanent=bool(parsed.get("permanent", False)))
        except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ValueError(f"the finish mark cannot be read: {error!r}") from error


@dataclass(frozen=True)
class FoundCheckpoint:
    """A complete checkpoint: every file that its mark lists is there with the listed size."""

    step: int
    epoch: int
    own: bool
    mark: FinishMark
    keys: Mapping[str, str]
    """Store key of each file by its name inside the checkpoint, the mark included."""

    @property
    def permanent(self) -> bool:
        """Whether it stays for ever."""
        return self.mark.permanent

    @property
    def size(self) -> int:
        """Bytes of all files but the mark."""
        return sum(file.size for file in self.mark.files)

    def describe(self) -> str:
        """Words for a log line."""
        return f"checkpoint of step {self.step} (epoch {self.epoch})"


@dataclass(frozen=True)
class SkippedCheckpoint:
    """Something under `checkpoints/` that is not a complete checkpoint, and why."""

    folder: str
    epoch: int
    own: bool
    reason: str
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Survey:
    """What lies under `checkpoints/`: the complete ones, newest first, and the rest with reasons."""

    complete: tuple[FoundCheckpoint, ...]
    skipped: tuple[SkippedCheckpoint, ...]


def survey(state: StateFolder, root: str = ROOT) -> Survey:
    """Lists the state once, reads the finish marks below `root`, and sorts complete from incomplete checkpoints.

    Newest is the highest step; of one step, the one of the highest epoch. Reads no tensor: digests are checked by
    whoever restores.
    """
    folders: dict[tuple[int, str], dict[str, FoundFile]] = {}
    for file in state.find(f"{root}/*"):
        folder, _, name = file.name.removeprefix(f"{root}/").partition("/")
        folders.setdefault((file.epoch, folder), {})[name] = file
    complete: list[FoundCheckpoint] = []
    skipped: list[SkippedCheckpoint] = []
    for (epoch, folder), files in folders.items():
        own = any(is_own(state, file) for file in files.values())
        try:
            mark = _readable_mark(state, folder, files)
        except ValueError as error:
            keys = tuple(file.key for file in files.values())
            skipped.append(SkippedCheckpoint(folder=folder, epoch=epoch, own=own, reason=str(error), keys=keys))
        else:
            by_name = {name: file.key for name, file in files.items()}
            complete.append(FoundCheckpoint(step=mark.step, epoch=epoch, own=own, mark=mark, keys=by_name))
    complete.sort(key=lambda found: (found.step, found.epoch), reverse=True)
    skipped.sort(key=lambda item: (item.folder, item.epoch))
    return Survey(complete=tuple(complete), skipped=tuple(skipped))


def log_skipped(items: Sequence[SkippedCheckpoint]) -> None:
    """Says once for each why it is not used."""
    for item in items:
        logger.warning("checkpoint %s (epoch %d) is skipped: %s", item.folder, item.epoch, item.reason)


def _readable_mark(state: StateFolder, folder: str, files: Mapping[str, FoundFile]) -> FinishMark:
    """The mark of a complete checkpoint; raises ValueError with the reason why it is not one."""
    step = step_of(folder)
    if step is None:
        raise ValueError("its name is not step-<number>")
    if FINISH_MARK not in files:
        raise ValueError(f"it has no finish mark {FINISH_MARK}: the save did not end")
    mark = FinishMark.from_bytes(state.store.read(files[FINISH_MARK].key))
    if mark.step != step:
        raise ValueError(f"its finish mark is of step {mark.step}")
    listed = {file.name for file in mark.files}
    for name in (TENSOR_INDEX, PROGRESS):
        if name not in listed:
            raise ValueError(f"its finish mark does not list {name}")
    for file in mark.files:
        found = files.get(file.name)
        if found is None:
            raise ValueError(f"its file {file.name} is missing")
        if found.size != file.size:
            raise ValueError(f"its file {file.name} has {found.size} bytes, the finish mark says {file.size}")
    return mark
