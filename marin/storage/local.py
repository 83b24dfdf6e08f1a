"""The store on a local disk.

`create` writes a temporary file, syncs it, and links it to its name: `os.link` refuses an existing name in one step,
so a reader never sees a torn object and a kill leaves none. The folder is synced afterwards, so that the name
survives a power cut as well.
"""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast

from marin.storage.store import AlreadyExists, MissingObject, ObjectInfo, Store, check_key
from marin.storage.writer import ChecksummedWriter

TEMPORARY = "_tmp"
FOLDER_TRIES = 20
FOLDER_PAUSE_SECONDS = 0.01


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Create a folder with its missing ancestors, durably."""
    missing: list[Path] = []
    ancestor = folder
    while not ancestor.exists():
        missing.append(ancestor)
        ancestor = ancestor.parent
    folder.mkdir(parents=True, exist_ok=True)
    for path in reversed(missing):
        sync_folder(path.parent)


def act_in_folder(folder: Path, act: Callable[[], object]) -> None:
    """Make a folder and act in it; again when the folder, still empty, was removed in between by who cleans up."""
    for attempt in range(FOLDER_TRIES):
        try:
            make_folder(folder)
            act()
        except FileNotFoundError:
            if attempt == FOLDER_TRIES - 1:
                raise
            time.sleep(random.uniform(0, FOLDER_PAUSE_SECONDS))  # else the two might keep step
        else:
            return


class LocalStore(Store):
    """Objects are the files below `root`; a hidden `_tmp` folder holds what is being written."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = str(root)

    def _path(self, key: str) -> Path:
        return self.root / check_key(key)

    def _temporary(self) -> Path:
        folder = self.root / TEMPORARY
        make_folder(folder)
        return folder / uuid.uuid4().hex

    def _write_temporary(self, data: bytes) -> Path:
        temporary = self._temporary()
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return temporary

    def read(self, key: str) -> bytes:
        try:
            return self._path(key).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise MissingObject(f"nothing lies under {self.url_of(key)}") from error

    def open(self, key: str) -> BinaryIO:
        try:
            return open(self._path(key), "rb")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise MissingObject(f"nothing lies under {self.url_of(key)}") from error

    def create(self, key: str, data: bytes) -> None:
        path = self._path(key)
        if path.exists():
            raise AlreadyExists(f"{self.url_of(key)} exists")
        temporary = self._write_temporary(data)
        try:
            act_in_folder(path.parent, lambda: os.link(temporary, path))
        except FileExistsError as error:
            raise AlreadyExists(f"{self.url_of(key)} exists") from error
        finally:
            temporary.unlink()
        sync_folder(path.parent)

    def put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        temporary = self._write_temporary(data)
        act_in_folder(path.parent, lambda: os.replace(temporary, path))

    def writer(self, key: str) -> ChecksummedWriter:
        path = self._path(key)
        temporary = self._temporary()
        stream = cast(BinaryIO, open(temporary, "wb"))  # noqa: SIM115 - the writer closes it
        return ChecksummedWriter(stream, _LocalCommit(stream, temporary, path))

    def size(self, key: str) -> int | None:
        try:
            status = self._path(key).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status.st_size if not self._path(key).is_dir() else None

    def list(self, prefix: str = "") -> list[ObjectInfo]:
        start = self.root / check_key(prefix.rstrip("/")) if prefix.strip("/") else self.root
        found: list[ObjectInfo] = []
        folders = [start]
        skip = self.root / TEMPORARY
        while folders:
            folder = folders.pop()
            try:
                entries = list(os.scandir(folder))
            except (FileNotFoundError, NotADirectoryError):
                continue
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if Path(entry.path) != skip:
                        folders.append(Path(entry.path))
                    continue
                try:
                    size = entry.stat().st_size
                except FileNotFoundError:
                    continue
                found.append(ObjectInfo(Path(entry.path).relative_to(self.root).as_posix(), size))
        return sorted(found, key=lambda info: info.key)

    def folders(self, prefix: str = "") -> tuple[str, ...]:
        start = self.root / check_key(prefix.rstrip("/")) if prefix.strip("/") else self.root
        try:
            entries = list(os.scandir(start))
        except (FileNotFoundError, NotADirectoryError):
            return ()
        skip = str(self.root / TEMPORARY)
        names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False) and entry.path != skip]
        return tuple(sorted(names))

    def delete(self, key: str) -> None:
        self._path(key).unlink(missing_ok=True)

    def url_of(self, key: str) -> str:
        return str(self._path(key))

    def local_path(self, key: str) -> Path | None:
        return self._path(key)


class _LocalCommit:
    """Moves the finished temporary file to its name. The key is the writer's own: no other writer has it."""

    def __init__(self, stream: BinaryIO, temporary: Path, path: Path) -> None:
        self.stream = stream
        self.temporary = temporary
        self.path = path

    def finish(self) -> None:
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self.stream.close()
        act_in_folder(self.path.parent, lambda: os.replace(self.temporary, self.path))
        sync_folder(self.path.parent)

    def discard(self) -> None:
        self.stream.close()
        self.temporary.unlink(missing_ok=True)
