"""Whether the files of a record lie in the store as the record says: there, of the size, and with the digest."""

from __future__ import annotations

import errno
import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from marin.execution import layout
from marin.execution.artifact import FileInfo
from marin.execution.codec import Reference
from marin.execution.failures import StepError
from marin.execution.identity import digest
from marin.execution.planning.index import RecordIndex
from marin.execution.planning.record_stream import stream_records
from marin.execution.records import Record, load_record, output_digest
from marin.storage import MissingObject, Store, open_store

CHUNK = 1 << 22
"""Bytes read at once."""
AT_ONCE = 8
"""Files that are read at the same time; a hash needs a processor, a request only patience."""
QUEUED = 16 * AT_ONCE
"""Files that wait for a thread; the records of the others are not read yet."""


@dataclass(frozen=True)
class Checked:
    """How far a check is: steps of all steps, files and bytes, bytes as their records say."""

    steps: int
    all_steps: int
    files: int
    size: int


def damage_of(store: Store, record: Record, *, digests: bool) -> list[str]:
    """What is wrong with a record's files, one text each. Without `digests` only sizes are compared."""
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="marin-verify") as pool:
        found = pool.map(lambda file: file_damage(store, file, digests=digests), record.files)
        return [*record_damage(store, record), *(damage for damage in found if damage is not None)]


def record_damage(store: Store, record: Record) -> list[str]:
    """What in a record does not agree with itself: its key, its recipe, its files and result."""
    found = []
    place = layout.record_key(record.name, record.identity, record.generation)
    if record.key != place:
        found.append(f"the record says that it belongs under {place}")
    if digest(record.recipe) != record.identity:
        found.append("the record's recipe is not the one that its identity says")
    known = {dependency.record: dependency.output_digest for dependency in record.dependencies}

    def digest_of(reference: Reference) -> str:
        if "$prefix" not in reference and reference["$artifact"] in known:
            return known[reference["$artifact"]]
        home = open_store(reference["$prefix"]) if "$prefix" in reference else store
        return load_record(home, reference["$artifact"]).output_digest

    try:
        if output_digest(record.files, record.result, digest_of) != record.output_digest:
            found.append("the record's list of files or its result is not what its output digest says")
    except StepError as error:
        found.append(f"its result refers to what cannot be read: {error}")
    return found


def file_damage(store: Store, file: FileInfo, *, digests: bool, listed: Mapping[str, int] | None = None) -> str | None:
    """What is wrong with one file, or None. `listed` holds sizes by key, of a listing that showed all of them."""
    size = store.size(file.key) if listed is None else listed.get(file.key)
    if size is None:
        return _missing(store, file)
    if size != file.size:
        return f"{file.name!r} has {size} bytes, its record says {file.size} ({store.url_of(file.key)})"
    if not digests:
        return None
    try:
        found = sha256_of(store, file.key)
    except MissingObject:
        return _missing(store, file)
    except OSError as error:
        if error.errno != errno.EIO:  # others, such as a network that is gone, say nothing about the file
            raise
        return f"{file.name!r} cannot be read from its disk ({store.url_of(file.key)})"
    if found != file.sha256:
        return f"{file.name!r} has the right size and other bytes than its record says ({store.url_of(file.key)})"
    return None


def _missing(store: Store, file: FileInfo) -> str:
    return f"{file.name!r} is missing ({store.url_of(file.key)})"


def sha256_of(store: Store, key: str) -> str:
    """The sha256 of an object in hex, read in pieces."""
    digest = hashlib.sha256()
    with store.open(key) as source:
        while chunk := source.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def verify_steps(
    store: Store,
    keys: Iterable[str],
    *,
    digests: bool = True,
    listed: Mapping[str, int] | None = None,
    progress: Callable[[Checked], None] | None = None,
) -> dict[str, list[str]]:
    """What is wrong with records and their files, by the record's key; a record without damage is left out.

    A record that cannot be read is damage too. See `verify_records`.
    """
    wanted = list(keys)
    return _Check(store, digests, listed, progress, len(wanted)).run(stream_records(store, wanted))


def verify_records(
    store: Store,
    records: Sequence[Record],
    *,
    digests: bool = True,
    progress: Callable[[Checked], None] | None = None,
) -> dict[str, list[str]]:
    """What is wrong with the files of records, by the record's key; a record without damage is left out.

    Files of all records are read several at a time, and one that several records list is read once. `progress` is
    called from this thread after each step.
    """
    return _Check(store, digests, None, progress, len(records)).run((record.key, record) for record in records)


def reasons_to_redo(store: Store, records: Sequence[Record]) -> dict[str, str]:
    """What is wrong with the files of records, in one line, by the record's key; digests are compared."""
    found = verify_records(store, records)
    return {
        key: f"damaged: {damage[0]}{f' and {len(damage) - 1} more' if len(damage) > 1 else ''}"
        for key, damage in found.items()
    }


def upstream_keys(store: Store, keys: Iterable[str], index: RecordIndex) -> list[str]:
    """Keys of records and of the newest records of all that they were made from, as far as the prefix has them."""
    found: dict[str, None] = dict.fromkeys(keys)
    level = list(found)
    while level:
        above: dict[str, None] = {}
        for _, record in stream_records(store, level):
            if isinstance(record, Record):
                for one in record.dependencies:
                    generation = index.generation(one.name, one.identity)
                    if generation:
                        above[layout.record_key(one.name, one.identity, generation)] = None
        level = [key for key in above if key not in found]
        found.update(above)
    return list(found)


class _Check:
    """One pass over records: files are handed to threads, and a step is settled when the last of its files is."""

    def __init__(
        self,
        store: Store,
        digests: bool,
        listed: Mapping[str, int] | None,
        progress: Callable[[Checked], None] | None,
        steps: int,
    ) -> None:
        self.store = store
        self.digests = digests
        self.listed = listed
        self.progress = progress
        self.done = Checked(0, steps, 0, 0)
        self.damage: dict[str, list[str]] = {}
        self._sound: set[FileInfo] = set()
        self._open: deque[tuple[str, Record, list[Future[str | None]]]] = deque()
        self._queued = 0

    def run(self, records: Iterable[tuple[str, Record | StepError]]) -> dict[str, list[str]]:
        pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="marin-verify")
        try:
            for key, record in records:
                if not isinstance(record, Record):
                    self.damage[key] = [str(record)]
                    self._count(0, 0)
                    continue
                self._open.append((key, record, [self._submit(pool, file) for file in record.files]))
                self._queued += len(record.files)
                while self._queued > QUEUED and self._open:
                    self._settle()
            while self._open:
                self._settle()
        finally:
            pool.shutdown(cancel_futures=True)
        return self.damage

    def _submit(self, pool: ThreadPoolExecutor, file: FileInfo) -> Future[str | None]:
        if file in self._sound:
            known: Future[str | None] = Future()
            known.set_result(None)
            return known
        return pool.submit(file_damage, self.store, file, digests=self.digests, listed=self.listed)

    def _settle(self) -> None:
        key, record, futures = self._open.popleft()
        results = [future.result() for future in futures]
        self._sound.update(file for file, damage in zip(record.files, results, strict=True) if damage is None)
        found = [*record_damage(self.store, record), *(damage for damage in results if damage is not None)]
        if found:
            self.damage[key] = found
        self._queued -= len(futures)
        self._count(len(futures), record.size)

    def _count(self, files: int, size: int) -> None:
        self.done = Checked(self.done.steps + 1, self.done.all_steps, self.done.files + files, self.done.size + size)
        if self.progress is not None:
            self.progress(self.done)
