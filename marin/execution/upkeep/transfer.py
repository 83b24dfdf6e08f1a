"""Copying files into a store, several at a time, with their digests checked or taken on the way."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from marin.execution.artifact import FileInfo
from marin.execution.failures import StepError
from marin.execution.upkeep.verify import CHUNK, sha256_of
from marin.storage import Store

AT_ONCE = 4
"""Files that are copied at the same time."""

Progress = Callable[[int], None]
"""Is told the bytes of each file that is in its place, from any thread."""


@dataclass(frozen=True)
class Transfer:
    """One file to copy: from a key of one store to a key of another. `sha256` is empty where it is not known."""

    name: str
    source: Store
    source_key: str
    size: int
    sha256: str
    key: str


def transfer(target: Store, files: Sequence[Transfer], progress: Progress | None = None) -> tuple[FileInfo, ...]:
    """Bring files into a store; returns them in their order, as they lie there.

    A file of known digest that is whole in its place already is left there, so that a copy that was cut short goes on.
    Raises `StepError` when the bytes that were read are not those of the digest: then nothing lies under the key.
    """

    def one(file: Transfer) -> FileInfo:
        found = _in_place(target, file) or _copy(target, file)
        if progress is not None:
            progress(found.size)
        return found

    pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="marin-copy")
    try:
        return tuple(pool.map(one, files))
    finally:
        pool.shutdown(cancel_futures=True)


def _in_place(target: Store, file: Transfer) -> FileInfo | None:
    if not file.sha256 or target.size(file.key) != file.size or sha256_of(target, file.key) != file.sha256:
        return None
    return FileInfo(file.name, file.key, file.size, file.sha256)


def _copy(target: Store, file: Transfer) -> FileInfo:
    digest = hashlib.sha256()
    with file.source.open(file.source_key) as source, target.writer(file.key) as stream:
        while chunk := source.read(CHUNK):
            digest.update(chunk)
            stream.write(chunk)
        if file.sha256 and digest.hexdigest() != file.sha256:
            raise StepError(
                f"{file.source.url_of(file.source_key)} is not what its record says; look at it with marin verify "
                f"--prefix {file.source.url}"
            )
    return FileInfo(file.name, file.key, stream.size, stream.sha256)
