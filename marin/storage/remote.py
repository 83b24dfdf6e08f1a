"""Stores that fsspec reaches, such as GCS and S3.

Conditional creation is the client's `pipe_file(mode="create")`: `ifGenerationMatch=0` on GCS, `IfNoneMatch: *` on S3.
Whatever a client raises comes out as a `StoreError`; what may pass is asked again first (`marin.storage.patience`).
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, BinaryIO

from marin.storage.client import Client, connect
from marin.storage.patience import Patience
from marin.storage.store import AlreadyExists, MissingObject, ObjectInfo, Page, Store, StoreError, check_key
from marin.storage.writer import ChecksummedWriter


class RemoteStore(Store):
    """A prefix `scheme://bucket/path` behind fsspec, without listing caches."""

    def __init__(self, scheme: str, path: str, patience: Patience | None = None) -> None:
        self.scheme = scheme
        self.path = path.strip("/")
        self.url = f"{scheme}://{self.path}"
        self.patience = patience or Patience()
        self._connected: Client | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connected": None}

    @property
    def client(self) -> Client:
        """The client of this process."""
        if self._connected is None:
            try:
                self._connected = connect(self.scheme, self.patience)
            except (ImportError, ValueError) as error:
                raise StoreError(f"no store for the scheme {self.scheme!r} of {self.url}: {error}") from error
        return self._connected

    @contextlib.contextmanager
    def _errors(self, key: str, *, writing: bool = False) -> Iterator[None]:
        """The client's errors as the contract's. Nothing that is written or listed can be missing but the bucket."""
        try:
            yield
        except StoreError:
            raise
        except FileNotFoundError as error:
            if not writing:
                raise MissingObject(f"nothing lies under {self.url}/{key}") from error
            bucket = self.path.partition("/")[0]
            raise StoreError(
                f"there is no bucket {bucket!r} for {self.url} (or it is not for these credentials to see); "
                "create it, or choose another with --prefix or MARIN_PREFIX"
            ) from error
        except FileExistsError as error:
            raise AlreadyExists(f"{self.url}/{key} exists") from error
        except Exception as error:  # clients have errors of their own, inside OSError and outside
            raise StoreError(
                f"{self.url} cannot be used ({type(error).__name__}: {' '.join(str(error).split())}); "
                "check the address and the credentials, or choose another with --prefix or MARIN_PREFIX"
            ) from error

    def _full(self, key: str) -> str:
        key = check_key(key)
        return f"{self.path}/{key}" if self.path else key

    def read(self, key: str) -> bytes:
        full = self._full(key)
        with self._errors(key):
            return self.client.read(full)

    def read_range(self, key: str, begin: int, end: int) -> bytes:
        full = self._full(key)
        with self._errors(key):
            return self.client.read_range(full, begin, end)

    def open(self, key: str) -> BinaryIO:
        full = self._full(key)
        with self._errors(key):
            size = self.client.size(full)
            if size is None:
                raise FileNotFoundError(full)
            return self.client.open(full, size)

    def create(self, key: str, data: bytes) -> None:
        full = self._full(key)
        with self._errors(key, writing=True):
            self.client.create(full, data)

    def put(self, key: str, data: bytes) -> None:
        full = self._full(key)
        with self._errors(key, writing=True):
            self.client.put(full, data)

    def writer(self, key: str) -> ChecksummedWriter:
        full = self._full(key)
        with self._errors(key, writing=True):
            upload = self.client.upload(full)
        commit = _RemoteUpload(upload, lambda: self._errors(key, writing=True))
        return ChecksummedWriter(commit, commit)

    def size(self, key: str) -> int | None:
        full = self._full(key)
        with self._errors(key):
            return self.client.size(full)

    def list(self, prefix: str = "") -> list[ObjectInfo]:
        return sorted((info for page in self.pages(prefix) for info in page), key=lambda info: info.key)

    def pages(self, prefix: str = "") -> Iterator[Page]:
        strip = len(self.path) + 1 if self.path else 0
        pages = self.client.pages(self._folder(prefix))
        while True:
            with self._errors(prefix, writing=True):
                page = next(pages, None)
            if page is None:
                return
            # A name that ends in a slash is the mark that a console leaves for a folder.
            yield [ObjectInfo(name[strip:], size) for name, size in page if not name.endswith("/")]

    def folders(self, prefix: str = "") -> tuple[str, ...]:
        with self._errors(prefix, writing=True):
            return tuple(sorted(name for page in self.client.folders(self._folder(prefix)) for name in page))

    def _folder(self, prefix: str) -> str:
        return f"{self._full(prefix.rstrip('/'))}/" if prefix.strip("/") else f"{self.path}/"

    def delete(self, key: str) -> None:
        full = self._full(key)
        with contextlib.suppress(MissingObject), self._errors(key):
            self.client.delete(full)

    def url_of(self, key: str) -> str:
        return f"{self.scheme}://{self._full(key)}"


class _RemoteUpload:
    """fsspec publishes a buffered upload on close; `discard` drops it unpublished."""

    def __init__(self, upload: Any, errors: Callable[[], AbstractContextManager[None]]) -> None:
        self.upload = upload
        self.errors = errors

    def write(self, data: Any) -> int:
        with self.errors():
            return int(self.upload.write(data))

    def finish(self) -> None:
        with self.errors():
            self.upload.close()

    def discard(self) -> None:
        # First of all: a file that is not marked as closed is published when Python lets go of it.
        self.upload.closed = True
        discard = getattr(self.upload, "discard", None)
        # Nothing can be sent any more while the interpreter ends; the store forgets unfinished uploads by itself.
        if discard is not None and not sys.is_finalizing():
            with self.errors():
                discard()
