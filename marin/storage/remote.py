"""Stores that fsspec reaches, such as GCS and S3.

Conditional creation is the client's `pipe_file(mode="create")`: `ifGenerationMatch=0` on GCS, `IfNoneMatch: *` on S3.
"""

from __future__ import annotations

from typing import Any, BinaryIO, cast

from marin.storage.store import AlreadyExists, MissingObject, ObjectInfo, Store, StoreError, check_key
from marin.storage.writer import ChecksummedWriter


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

    def _full(self, key: str) -> str:
        key = check_key(key)
        return f"{self.path}/{key}" if self.path else key

    def read(self, key: str) -> bytes:
        try:
            return cast(bytes, self._fs.cat_file(self._full(key)))
        except FileNotFoundError as error:
            raise MissingObject(f"nothing lies under {self.url_of(key)}") from error

    def open(self, key: str) -> BinaryIO:
        try:
            return cast(BinaryIO, self._fs.open(self._full(key), "rb"))
        except FileNotFoundError as error:
            raise MissingObject(f"nothing lies under {self.url_of(key)}") from error

    def create(self, key: str, data: bytes) -> None:
        try:
            self._fs.pipe_file(self._full(key), data, mode="create")
        except FileExistsError as error:
            raise AlreadyExists(f"{self.url_of(key)} exists") from error

    def put(self, key: str, data: bytes) -> None:
        self._fs.pipe_file(self._full(key), data)

    def writer(self, key: str) -> ChecksummedWriter:
        stream = self._fs.open(self._full(key), "wb")
        return ChecksummedWriter(stream, _RemoteCommit(stream))

    def size(self, key: str) -> int | None:
        try:
            info = self._fs.info(self._full(key))
        except FileNotFoundError:
            return None
        return int(info["size"]) if info["type"] == "file" else None

    def list(self, prefix: str = "") -> list[ObjectInfo]:
        folder = self._full(prefix.rstrip("/")) if prefix.strip("/") else self.path
        try:
            found: dict[str, dict[str, Any]] = self._fs.find(f"{folder}/", detail=True)
        except FileNotFoundError:
            return []
        strip = len(self.path) + 1 if self.path else 0
        infos = [ObjectInfo(name.lstrip("/")[strip:], int(info["size"])) for name, info in found.items()]
        start = f"{prefix.rstrip('/')}/" if prefix.strip("/") else ""
        return sorted((info for info in infos if info.key.startswith(start)), key=lambda info: info.key)

    def delete(self, key: str) -> None:
        try:
            self._fs.rm_file(self._full(key))
        except FileNotFoundError:
            return

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
