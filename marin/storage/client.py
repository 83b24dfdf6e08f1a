"""What a remote store asks of an fsspec client, on paths `bucket/key`.

fsspec answers each of these as well, but often by more requests than it takes: a listing behind every missing object,
a size before every read, and every page of a listing before the first is given.
"""

from __future__ import annotations

import abc
import contextlib
import uuid
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from marin.storage.patience import Patience

Names = list[tuple[str, int]]
"""(bucket/key, size in bytes) of each object of one page."""

PAGE_KEYS = 1000
"""What S3 and GCS give at most in one answer."""
PART_BYTES = 32 * 2**20
"""One part of a big upload. S3 takes 10,000 of them: 320 GB an object."""
MARK = "marin-create"
"""The metadata by which a writer knows the object that it created.

A conditional write that is sent twice is refused the second time. The first reply may have been lost, and what sends
again need not be us: aiohttp repeats a PUT whose connection broke, and so may any proxy.
"""


class Client:
    """Any file system of fsspec. Errors are those of fsspec."""

    def __init__(self, fs: Any) -> None:
        self.fs = fs

    def read(self, path: str) -> bytes:
        """The whole object."""
        return cast(bytes, self.fs.cat_file(path))

    def read_range(self, path: str, begin: int, end: int) -> bytes:
        """The bytes of an object from `begin` up to `end`."""
        return cast(bytes, self.fs.cat_file(path, start=begin, end=end))

    def open(self, path: str, size: int) -> BinaryIO:
        """A stream over an object of a known size in bytes."""
        return cast(BinaryIO, self.fs.open(path, "rb"))

    def create(self, path: str, data: bytes) -> None:
        """Write an object if there is none; FileExistsError otherwise."""
        self.fs.pipe_file(path, data, mode="create")

    def put(self, path: str, data: bytes) -> None:
        """Write an object, whatever is there."""
        self.fs.pipe_file(path, data)

    def upload(self, path: str) -> Any:
        """A writable file whose `close` makes the object appear and whose `discard` drops it."""
        return self.fs.open(path, "wb")

    def size(self, path: str) -> int | None:
        """The size of an object in bytes; None when there is none."""
        try:
            info = self.fs.info(path)
        except FileNotFoundError:
            return None
        return int(info["size"]) if info["type"] == "file" else None

    def pages(self, folder: str) -> Iterator[Names]:
        """Everything below `bucket/prefix/`, a page at a time."""
        try:
            found: dict[str, dict[str, Any]] = self.fs.find(folder, detail=True)
        except FileNotFoundError:
            return
        start = folder.lstrip("/")
        names = ((name.lstrip("/"), int(info["size"])) for name, info in found.items())
        yield [(name, size) for name, size in names if name.startswith(start)]

    def folders(self, folder: str) -> Iterator[list[str]]:
        """The names directly below `bucket/prefix/` that have something below themselves, a page at a time."""
        below = (name[len(folder.lstrip("/")) :].partition("/") for page in self.pages(folder) for name, _ in page)
        yield sorted({name for name, slash, _ in below if slash})

    def delete(self, path: str) -> None:
        """Remove an object; FileNotFoundError where the service says that there was none."""
        self.fs.rm_file(path)


class MarkingClient(Client, abc.ABC):
    """Knows an object that it created by a mark, when a conditional write is refused: the first reply was lost."""

    def create(self, path: str, data: bytes) -> None:
        mark = uuid.uuid4().hex
        try:
            self._create_marked(path, data, {MARK: mark})
        except FileExistsError:
            if self._mark_of(path) != mark:
                raise

    def _mark_of(self, path: str) -> str | None:
        bucket, key, _ = self.fs.split_path(path)
        with contextlib.suppress(FileNotFoundError):
            return self._metadata_of(bucket, key).get(MARK)
        return None

    @abc.abstractmethod
    def _create_marked(self, path: str, data: bytes, metadata: dict[str, str]) -> None:
        """Write an object with metadata if there is none; FileExistsError otherwise."""

    @abc.abstractmethod
    def _metadata_of(self, bucket: str, key: str) -> dict[str, str]:
        """The metadata of an object; FileNotFoundError when there is none."""


def connect(scheme: str, patience: Patience) -> Client:
    """The client for a scheme. The clients' packages are imported here, when a store is first asked for something."""
    if scheme in ("s3", "s3a"):
        from marin.storage.s3 import S3Client

        return S3Client(patience)
    if scheme in ("gs", "gcs"):
        from marin.storage.gcs import GcsClient

        return GcsClient(patience)
    import fsspec

    return Client(fsspec.filesystem(scheme, use_listings_cache=False))
