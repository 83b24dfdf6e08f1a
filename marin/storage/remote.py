"""Stores that fsspec reaches, such as GCS and S3.

Conditional creation is the client's `pipe_file(mode="create")`: `ifGenerationMatch=0` on GCS, `IfNoneMatch: *` on S3.
Errors that clients keep outside OSError (no credentials, a refused request) come out as `StoreError`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from marin.storage.listing import FOLDERS, PAGES, whole_listing
from marin.storage.store import AlreadyExists, MissingObject, ObjectInfo, Page, Store, StoreError, check_key
from marin.storage.writer import ChecksummedWriter

CREATE_TRIES = 5
CONFLICT_PAUSE_SECONDS = 0.2


def refusal_of(error: BaseException) -> str:
    """The code of the S3 response behind a client's error, or an empty text."""
    response = getattr(error.__cause__, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


class RemoteStore(Store):
    """A prefix `scheme://bucket/path` behind fsspec, without listing caches."""

    def __init__(self, scheme: str, path: str) -> None:
        self.scheme = scheme
        self.path = path.strip("/")
        self.url = f"{scheme}://{self.path}"
        self._connected: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connected": None}

    @property
    def _fs(self) -> Any:
        if self._connected is None:
            import fsspec

            try:
                self._connected = fsspec.filesystem(self.scheme, use_listings_cache=False)
            except (ImportError, ValueError) as error:
                raise StoreError(f"no store for the scheme {self.scheme!r} of {self.url}: {error}") from error
        return self._connected

    @contextlib.contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        """The client's errors as the contract's."""
        try:
            yield
        except FileNotFoundError as error:
            raise MissingObject(f"nothing lies under {self.url}/{key}") from error
        except (OSError, StoreError):
            raise
        except Exception as error:  # clients have errors of their own
            raise StoreError(
                f"{self.url} cannot be used ({type(error).__name__}: {error}); "
                "check the address and the credentials, or choose another with --prefix or MARIN_PREFIX"
            ) from error

    def _full(self, key: str) -> str:
        key = check_key(key)
        return f"{self.path}/{key}" if self.path else key

    def read(self, key: str) -> bytes:
        with self._errors(key):
            return cast(bytes, self._fs.cat_file(self._full(key)))

    def open(self, key: str) -> BinaryIO:
        with self._errors(key):
            return cast(BinaryIO, self._fs.open(self._full(key), "rb"))

    def create(self, key: str, data: bytes) -> None:
        for left in reversed(range(CREATE_TRIES)):
            try:
                with self._errors(key):
                    self._fs.pipe_file(self._full(key), data, mode="create")
                return
            except FileExistsError as error:
                raise AlreadyExists(f"{self.url_of(key)} exists") from error
            except OSError as error:
                refusal = refusal_of(error)
                # s3fs knows the refusal only by a field that not every S3 server sends.
                if refusal == "PreconditionFailed":
                    raise AlreadyExists(f"{self.url_of(key)} exists") from error
                # AWS asks the loser of a race to try again: the winner may yet fail.
                if refusal != "ConditionalRequestConflict" or not left:
                    raise
            time.sleep(CONFLICT_PAUSE_SECONDS)

    def put(self, key: str, data: bytes) -> None:
        with self._errors(key):
            self._fs.pipe_file(self._full(key), data)

    def writer(self, key: str) -> ChecksummedWriter:
        with self._errors(key):
            stream = self._fs.open(self._full(key), "wb")
        return ChecksummedWriter(stream, _RemoteCommit(stream))

    def size(self, key: str) -> int | None:
        try:
            with self._errors(key):
                info = self._fs.info(self._full(key))
        except MissingObject:
            return None
        return int(info["size"]) if info["type"] == "file" else None

    def list(self, prefix: str = "") -> list[ObjectInfo]:
        return sorted((info for page in self.pages(prefix) for info in page), key=lambda info: info.key)

    def pages(self, prefix: str = "") -> Iterator[Page]:
        folder = f"{self._full(prefix.rstrip('/'))}/" if prefix.strip("/") else f"{self.path}/"
        strip = len(self.path) + 1 if self.path else 0
        pages = PAGES.get(self.scheme, whole_listing)(self._fs, folder)
        while True:
            try:
                with self._errors(prefix):
                    page = next(pages, None)
            except MissingObject:
                return
            if page is None:
                return
            # A name that ends in a slash is the mark that a console leaves for a folder.
            yield [ObjectInfo(name[strip:], size) for name, size in page if not name.endswith("/")]

    def folders(self, prefix: str = "") -> tuple[str, ...]:
        if self.scheme not in FOLDERS:
            return super().folders(prefix)
        folder = f"{self._full(prefix.rstrip('/'))}/" if prefix.strip("/") else f"{self.path}/"
        try:
            with self._errors(prefix):
                return tuple(sorted(name for page in FOLDERS[self.scheme](self._fs, folder) for name in page))
        except MissingObject:
            return ()

    def delete(self, key: str) -> None:
        with contextlib.suppress(MissingObject), self._errors(key):
            self._fs.rm_file(self._full(key))

    def url_of(self, key: str) -> str:
        return f"{self.scheme}://{self._full(key)}"


class _RemoteCommit:
    """fsspec publishes a buffered upload on close; `discard` drops it unpublished."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def finish(self) -> None:
        self.stream.close()

    def discard(self) -> None:
        discard = getattr(self.stream, "discard", None)
        if discard is not None:
            discard()
        self.stream.closed = True
