"""The store on a local disk.

`create` writes a temporary file, syncs it, and links it to its name: `os.link` refuses an existing name in one step,
so a reader never sees a torn object and a kill leaves none. The folder is synced afterwards, so that the name
survives a power cut as well.

A graph of thousands of small steps is mostly these calls: paths are texts here, and no folder is looked for before it
is missed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast

from marin.storage.store import AlreadyExists, MissingObject, ObjectInfo, Store, check_key
from marin.storage.writer import ChecksummedWriter

TEMPORARY = "_tmp"
FOLDER_TRIES = 20
FOLDER_PAUSE_SECONDS = 0.01
LEFT_OVER_SECONDS = 24 * 3600.0
"""A temporary file that nobody has touched for so long belongs to nobody, unless its writer still holds its lock."""


def sync_folder(folder: str) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: str) -> list[str]:
    """Create a folder with its missing ancestors; the folders that hold a new name, deepest first."""
    changed: list[str] = []
    ancestor = folder
    while not os.path.exists(ancestor):
        ancestor = os.path.dirname(ancestor)
        changed.append(ancestor)
    os.makedirs(folder, exist_ok=True)
    return changed


def act_in_folder(folder: str, act: Callable[[], object], *, durable: bool = False) -> None:
    """Act in a folder that may be missing, or be removed in between, still empty, by who cleans up.

    durable: sync the folder afterwards, and those above it that got a new one. From below, since a journal that is
        written out for the deepest has the others in it.
    """
    changed = [folder]
    for left in reversed(range(FOLDER_TRIES)):
        try:
            act()
            break
        except FileNotFoundError:
            if not left:
                raise
            if left < FOLDER_TRIES - 1:
                time.sleep(random.uniform(0, FOLDER_PAUSE_SECONDS))  # else the two might keep step
            with contextlib.suppress(FileNotFoundError):
                changed = [folder, *make_folder(folder)]
    if durable:
        for path in changed:
            sync_folder(path)


class LocalStore(Store):
    """Objects are the files below `root`; a hidden `_tmp` folder holds what is being written."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = str(root)
        self._base = self.url.rstrip("/")

    def _path(self, key: str) -> str:
        return f"{self._base}/{check_key(key)}"

    def _folder(self, prefix: str) -> str:
        return self._path(prefix.rstrip("/")) if prefix.strip("/") else self.url

    def _temporary(self) -> tuple[str, int]:
        """A new file in `_tmp`, open for writing: (path, descriptor)."""
        path = f"{self._base}/{TEMPORARY}/{os.urandom(16).hex()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        opened: list[int] = []
        act_in_folder(os.path.dirname(path), lambda: opened.append(os.open(path, flags, 0o666)))
        with contextlib.suppress(OSError):  # a file system without locks: nothing is swept there either
            fcntl.flock(opened[0], fcntl.LOCK_SH | fcntl.LOCK_NB)
        return path, opened[0]

    def _write_temporary(self, data: bytes) -> str:
        path, descriptor = self._temporary()
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        except BaseException:
            os.unlink(path)
            raise
        finally:
            os.close(descriptor)
        return path

    def read(self, key: str) -> bytes:
        with self.open(key) as stream:
            return stream.read()

    def open(self, key: str) -> BinaryIO:
        path = self._path(key)
        try:
            return open(path, "rb")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise MissingObject(f"nothing lies under {path}") from error

    def create(self, key: str, data: bytes) -> None:
        path = self._path(key)
        if os.path.lexists(path):
            raise AlreadyExists(f"{path} exists")
        temporary = self._write_temporary(data)
        try:
            act_in_folder(os.path.dirname(path), lambda: os.link(temporary, path), durable=True)
        except FileExistsError as error:
            raise AlreadyExists(f"{path} exists") from error
        finally:
            os.unlink(temporary)

    def put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        temporary = self._write_temporary(data)
        act_in_folder(os.path.dirname(path), lambda: os.replace(temporary, path))

    def writer(self, key: str) -> ChecksummedWriter:
        path = self._path(key)
        temporary, descriptor = self._temporary()
        stream = cast(BinaryIO, os.fdopen(descriptor, "wb"))
        return ChecksummedWriter(stream, _LocalCommit(stream, temporary, path))

    def size(self, key: str) -> int | None:
        try:
            status = os.stat(self._path(key))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return None if stat.S_ISDIR(status.st_mode) else status.st_size

    def list(self, prefix: str = "") -> list[ObjectInfo]:
        found: list[ObjectInfo] = []
        folders = [self._folder(prefix)]
        strip = len(self._base) + 1
        skip = f"{self._base}/{TEMPORARY}"
        while folders:
            folder = folders.pop()
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        path = entry.path
                        if entry.is_dir(follow_symlinks=False):
                            if path != skip:
                                folders.append(path)
                            continue
                        with contextlib.suppress(FileNotFoundError):
                            found.append(ObjectInfo(path[strip:], entry.stat().st_size))
            except (FileNotFoundError, NotADirectoryError):
                continue
        found.sort(key=lambda info: info.key)
        return found

    def folders(self, prefix: str = "") -> tuple[str, ...]:
        skip = f"{self._base}/{TEMPORARY}"
        try:
            with os.scandir(self._folder(prefix)) as entries:
                names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False) and entry.path != skip]
        except (FileNotFoundError, NotADirectoryError):
            return ()
        return tuple(sorted(names))

    def delete(self, key: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(key))

    def url_of(self, key: str) -> str:
        return self._path(key)

    def local_path(self, key: str) -> Path | None:
        return Path(self._path(key))

    def sweep(self) -> None:
        """Remove temporary files of killed writers: untouched for a day, and without the lock that a writer holds."""
        before = time.time() - LEFT_OVER_SECONDS
        with (
            contextlib.suppress(FileNotFoundError, NotADirectoryError),
            os.scandir(f"{self._base}/{TEMPORARY}") as entries,
        ):
            for entry in entries:
                with contextlib.suppress(OSError):  # it went, it is another user's, its writer lives, or no locks
                    if entry.stat(follow_symlinks=False).st_mtime < before:
                        _remove_unlocked(entry.path)


def _remove_unlocked(path: str) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
    finally:
        os.close(descriptor)


class _LocalCommit:
    """Moves the finished temporary file to its name. The key is the writer's own: no other writer has it."""

    def __init__(self, stream: BinaryIO, temporary: str, path: str) -> None:
        self.stream = stream
        self.temporary = temporary
        self.path = path

    def finish(self) -> None:
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self.stream.close()
        act_in_folder(os.path.dirname(self.path), lambda: os.replace(self.temporary, self.path), durable=True)

    def discard(self) -> None:
        self.stream.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.temporary)
