"""The part of a step's resumable state that checkpoints need; `current_run().state` satisfies it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import BinaryIO, Protocol


class ByteSink(Protocol):
    """Something that takes bytes in order."""

    def write(self, data: bytes, /) -> object: ...


class FileSink(ByteSink, Protocol):
    """A sink that becomes a file of the state when it is closed."""

    @property
    def size(self) -> int:
        """Bytes written so far."""

    @property
    def sha256(self) -> str:
        """In hex, once it is closed."""


class FoundFile(Protocol):
    """One object of the resumable state: its name inside its epoch, and where it lies in the store."""

    @property
    def name(self) -> str: ...

    @property
    def epoch(self) -> int: ...

    @property
    def key(self) -> str: ...

    @property
    def size(self) -> int: ...


class ObjectStore(Protocol):
    """What is asked of the store itself; `marin.storage.Store` satisfies it."""

    def read(self, key: str, /) -> bytes: ...

    def open(self, key: str, /) -> BinaryIO: ...

    def delete(self, key: str, /) -> None: ...


class StateFolder(Protocol):
    """Resumable state of one holder: it writes into its own epoch and sees all epochs up to its own."""

    @property
    def store(self) -> ObjectStore: ...

    def write(self, name: str, /) -> AbstractContextManager[FileSink]: ...

    def create(self, name: str, data: bytes, /) -> object: ...

    def key(self, name: str, /) -> str: ...

    def find(self, pattern: str, /) -> Sequence[FoundFile]: ...


def is_own(state: StateFolder, file: FoundFile) -> bool:
    """True when `file` lies in the holder's own epoch, the only one that it may remove anything from."""
    return file.key == state.key(file.name)
