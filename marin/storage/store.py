"""The store contract and the choice of a back end by URL.

What is promised, on every back end:

- `create` either makes the whole object, durable, or raises `AlreadyExists`; of any number of racing writers exactly
  one wins, and no reader ever sees a part of it.
- an object of a `writer` appears only when the writer was closed without an exception, whole.
- `list` sees what was written before it was called: no client-side listing caches.
- keys are taken literally: `#`, `%`, `?`, `*` and spaces are ordinary characters.
"""

from __future__ import annotations

import os
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from marin.storage.writer import ChecksummedWriter


class StoreError(Exception):
    """A store cannot do what was asked; the message is for people."""


class StoreUnavailable(StoreError):
    """A store throttles, fails on its side or does not answer, after it was asked again for a while.

    To go on later may help; every other `StoreError` stays as it is until somebody mends its cause.
    """


class StoreUnreachable(StoreUnavailable):
    """Nothing at the address has ever answered this process: no network, or a wrong endpoint.

    A worker on another machine may have more luck; to ask again from here is hardly worth the wait.
    """


class AlreadyExists(StoreError, FileExistsError):
    """`create` found an object under the key."""


class MissingObject(StoreError, FileNotFoundError):
    """Nothing lies under the key."""


class InvalidKey(StoreError, ValueError):
    """A key with an empty, `.` or `..` part."""


class InvalidPrefix(StoreError, ValueError):
    """An address that cannot be a prefix: empty, misspelt, or a file."""


MISSPELT = re.compile(r"(gs|gcs|s3|s3a|memory|file|local):(?!//)(.*)", re.DOTALL)
"""A scheme without its two slashes, which would be a local folder of that name."""


@dataclass(frozen=True)
class ObjectInfo:
    """One listed object: its key relative to the store, and its size in bytes."""

    key: str
    size: int


Page = list[ObjectInfo]
"""What a store lists in one answer."""


BAD_KEY = re.compile(r"(?:^|/)\.{0,2}(?:/|\Z)|\0")
"""An empty, `.` or `..` part, or a zero byte."""


def check_key(key: str) -> str:
    """The key itself, or `InvalidKey` when it could leave the prefix or name nothing."""
    if BAD_KEY.search(key):
        raise InvalidKey(f"{key!r} is no object key: parts between slashes must not be empty, '.' or '..'")
    return key


class Store(ABC):
    """A prefix in an object store. Keys are `/`-joined strings relative to it. Instances pickle."""

    url: str

    @abstractmethod
    def read(self, key: str) -> bytes:
        """The whole object; `MissingObject` when there is none."""

    def read_range(self, key: str, begin: int, end: int) -> bytes:
        """The bytes from `begin` up to, but not including, `end`, in one request where the store has ranges."""
        with self.open(key) as stream:
            stream.seek(begin)
            return stream.read(end - begin)

    @abstractmethod
    def open(self, key: str) -> BinaryIO:
        """A readable, seekable stream over the object; `MissingObject` when there is none."""

    @abstractmethod
    def create(self, key: str, data: bytes) -> None:
        """Make the object if nothing lies under the key, durably; `AlreadyExists` otherwise."""

    @abstractmethod
    def put(self, key: str, data: bytes) -> None:
        """Write or overwrite a small object whole. For heartbeats only: nothing that is trusted is overwritten."""

    @abstractmethod
    def writer(self, key: str) -> ChecksummedWriter:
        """A writer whose object appears, whole, when it is closed without an exception."""

    @abstractmethod
    def size(self, key: str) -> int | None:
        """The object's size in bytes, or None when there is no such object."""

    @abstractmethod
    def list(self, prefix: str = "") -> list[ObjectInfo]:
        """Every object below the folder `prefix`, sorted by key. Bounded by a slash: `run-1` never shows `run-10`."""

    def pages(self, prefix: str = "") -> Iterator[Page]:
        """The objects of `list`, one page of the store at a time and each page asked for only when it is wanted.

        In the order of the store. A store without pages has one.
        """
        yield self.list(prefix)

    def folders(self, prefix: str = "") -> tuple[str, ...]:
        """The names of the folders directly below the folder `prefix`, sorted, without what lies in them."""
        skip = len(prefix.rstrip("/")) + 1 if prefix.strip("/") else 0
        below = (info.key[skip:].partition("/") for info in self.list(prefix))
        return tuple(sorted({name for name, slash, _ in below if slash}))

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove an object; nothing happens when it is absent."""

    @abstractmethod
    def url_of(self, key: str) -> str:
        """The object's address for fsspec."""

    def local_path(self, key: str) -> Path | None:
        """The object as a file of this machine, where the store is a local folder."""
        return None

    def sweep(self) -> None:
        """Remove what killed writers left behind long ago, where the store does not see to it by itself."""
        return

    def exists(self, key: str) -> bool:
        """Whether an object lies under the key."""
        return self.size(key) is not None

    def check_writable(self) -> None:
        """Prove create-if-absent on this store: the same key twice, the second must be refused.

        Raises `StoreError` with the way out when the store cannot be written or lets two writers win.
        """
        probe = f"_probe/{uuid.uuid4().hex}"
        try:
            self.create(probe, b"1")
        except StoreError:
            raise
        except Exception as error:  # clients have errors of their own: no credentials, no bucket, no network
            cause = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise StoreError(
                f"the prefix {self.url} cannot be written ({cause}); "
                "choose another with --prefix or MARIN_PREFIX, or mend its permissions"
            ) from error
        try:
            self.create(probe, b"2")
        except AlreadyExists:
            self.sweep()
            return
        finally:
            self.delete(probe)
        raise StoreError(
            f"the store of {self.url} let a second writer overwrite an object that was to be created only once; "
            "without create-if-absent no run is safe there: use another store"
        )


def split_url(url: str) -> tuple[str, str]:
    """(scheme, rest) of an URL; a plain path has the scheme `file`."""
    scheme, separator, rest = url.partition("://")
    return (scheme, rest) if separator else ("file", url)


def open_store(url: str | os.PathLike[str]) -> Store:
    """The store of a prefix: a local folder, or any address that fsspec knows (`gs://`, `s3://`, `memory://`).

    Relative local prefixes are made absolute once, here. Raises `InvalidPrefix` for an address that can be no prefix.
    """
    address = os.fspath(url)
    if not address.strip():
        raise InvalidPrefix("the prefix is empty; name a folder or a bucket")
    misspelt = MISSPELT.match(address)
    if misspelt:
        rest = misspelt[2] if misspelt[1] in ("file", "local") else misspelt[2].lstrip("/")
        raise InvalidPrefix(
            f"the prefix {address} lacks slashes: did you mean {misspelt[1]}://{rest}? "
            f"A local folder of that name is ./{address}"
        )
    scheme, rest = split_url(address)
    if scheme in ("file", "local"):
        from marin.storage.local import LocalStore

        root = Path(rest).expanduser().absolute()
        if root.is_file():
            raise InvalidPrefix(f"the prefix {address} is a file; name a folder with --prefix or MARIN_PREFIX")
        return LocalStore(root)
    if scheme == "memory":
        from marin.storage.memory import MemoryStore

        return MemoryStore(scheme, rest)
    from marin.storage.remote import RemoteStore

    return RemoteStore(scheme, rest)
