"""Registering data that exists as a committed step, so that graphs can use it as `adopted(…)`.

Files that lie inside the prefix are taken by reference: they stay where they are, and are their owner's. Others are
copied in. The record holds the same evidence as that of any step: each file's size and sha256, and a result that the
class of the artifact accepts.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from marin.execution import layout
from marin.execution.adopted import adopted
from marin.execution.artifact import Artifact, FileInfo, bind, call_of
from marin.execution.codec import Reference, decode, encode, qualified_name
from marin.execution.failures import StepError
from marin.execution.fitting import misfit_of_fields
from marin.execution.identity import digest, identity_document, recipe_of
from marin.execution.planning.index import find_records
from marin.execution.records import Record, load_record, materialise_record, output_digest
from marin.execution.upkeep.custody import Custodian
from marin.execution.upkeep.transfer import Progress, Transfer, transfer
from marin.execution.upkeep.verify import AT_ONCE, damage_of, sha256_of
from marin.storage import AlreadyExists, Store, open_store

REFERENCE = "reference"
COPY = "copy"

Describe = Callable[[Artifact], Artifact]


@dataclass(frozen=True)
class Found:
    """The files of a path: their store, (name, key, size) of each, and where they lie in the prefix if they do."""

    path: str
    store: Store
    files: tuple[tuple[str, str, int], ...]
    inside: str | None

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for _, _, size in self.files)


def find_files(store: Store, path: str) -> Found:
    """The file of a path, or all files below it; raises `StepError` when there are none."""
    inside = place_in(store, path)
    if inside is not None:
        source, key = store, inside
        if not key or key.startswith("_"):
            raise StepError(f"{path} is the prefix's own; adopt a folder of yours in it")
    elif "://" in path:
        above, _, key = path.rstrip("/").rpartition("/")
        source = open_store(above)
    else:
        absolute = os.path.abspath(os.path.expanduser(path))
        source, key = open_store(os.path.dirname(absolute)), os.path.basename(absolute)
    size = source.size(key)
    if size is not None:
        return Found(path, source, ((key.rpartition("/")[2], key, size),), inside)
    files = tuple((info.key.removeprefix(f"{key}/"), info.key, info.size) for info in source.list(key))
    if not files:
        raise StepError(f"there is no file at {path}, nor below it")
    return Found(path, source, files, inside)


def place_in(store: Store, path: str) -> str | None:
    """The key under which a path lies in a prefix, "" for the prefix itself, None for a place outside."""
    root = store.local_path("_")
    if root is None or "://" in path:
        url = path.rstrip("/")
        return url.removeprefix(store.url).strip("/") if f"{url}/".startswith(f"{store.url}/") else None
    own, other = os.path.realpath(root.parent), os.path.realpath(os.path.expanduser(path))
    if other != own and not other.startswith(f"{own}{os.sep}"):
        return None
    return os.path.relpath(other, own).replace(os.sep, "/") if other != own else ""


@dataclass(frozen=True)
class Adoption:
    """What is to be adopted: files under a name and version, as an artifact of a class with a result.

    `result` is the JSON form of the artifact, or None: then the class itself describes the files (`describe`).
    """

    name: str
    version: str
    kind: type[Artifact]
    result: Any = None

    def document(self) -> dict[str, Any]:
        """The identity document: that of a handle which `adopted` returns."""
        call = call_of(adopted(self.name, version=self.version, kind=self.kind))
        assert call is not None
        return identity_document(call, recipe_of(call), [])

    def check(self) -> None:
        """Raise `StepError` when there is no result and the class cannot describe files, before anything is read."""
        if self.result is None and describer(self.kind) is None:
            raise StepError(
                f"{self.kind.__name__} does not describe files by itself: give its fields as --result JSON or "
                "--result @FILE"
            )


def describer(kind: type[Artifact]) -> Describe | None:
    """What makes an artifact of a class from its files alone, if the class can: its class method `describe`."""
    found = getattr(kind, "describe", None)
    return found if callable(found) else None


def adopt(store: Store, found: Found, adoption: Adoption, progress: Progress | None = None) -> tuple[Record, bool]:
    """Make the record; returns it, and whether it is new. The same files adopted again change nothing.

    Files that were lost or buried are brought in again as the next generation, if they are the same. Raises `StepError`
    when the result does not fit the class, when the name and version stand for other content, or when a run holds the
    step.
    """
    adoption.check()
    document = adoption.document()
    identity = digest(document)
    index = find_records(store, [(adoption.name, identity)])
    generation = index.generation(adoption.name, identity)
    if generation:
        earlier = load_record(store, layout.record_key(adoption.name, identity, generation))
        gone = index.is_tombstoned(adoption.name, identity, generation)
        if _stands(store, earlier, found, adoption, gone):
            return earlier, False
    folder = layout.step_folder(adoption.name, None, identity)
    started = time.time()
    with Custodian(store) as custodian, custodian.held(adoption.name, identity, generation + 1, folder) as claim:
        attempt = layout.attempt_folder(folder, 1, custodian.run)
        by = REFERENCE if found.inside is not None else COPY
        record = Record(
            key=layout.record_key(adoption.name, identity, generation + 1),
            name=adoption.name,
            version=adoption.version,
            label=None,
            identity=identity,
            generation=generation + 1,
            path=found.inside if found.inside is not None else attempt,
            result_type=qualified_name(adoption.kind),
            result=None,
            files=hashed(found, progress) if by == REFERENCE else _copied(store, found, attempt, progress),
            flows=(),
            recipe=document,
            dependencies=(),
            output_digest="",
            code_digest="",
            provenance={
                "run": custodian.run,
                "attempt": 1,
                "epoch": claim.epoch,
                "host": socket.gethostname(),
                "started": started,
                "finished": time.time(),
                "adopted": {"path": found.path, "by": by},
            },
        )
        record = with_result(store, record, adoption)
        try:
            store.create(record.key, record.to_json())
        except AlreadyExists:  # a holder that was taken for dead was first
            return load_record(store, record.key), False
        custodian.forget(claim)
    return record, True


def _stands(store: Store, earlier: Record, found: Found, adoption: Adoption, gone: bool) -> bool:
    """Whether an earlier adoption of the name and version still answers; `StepError` when it has other content."""
    other = not _same_files(hashed(found), earlier.files)
    if not other and adoption.result is not None:
        other = check_result(store, adoption.result, adoption.kind) != earlier.result
    if other:
        raise StepError(
            f"{earlier.display} stands for other content (adopted from {earlier.provenance['adopted']['path']}); give "
            f"this one a version of its own, not {adoption.version!r}"
        )
    return not gone and not damage_of(store, earlier, digests=True)


def _same_files(some: tuple[FileInfo, ...], others: tuple[FileInfo, ...]) -> bool:
    return {(one.name, one.size, one.sha256) for one in some} == {(one.name, one.size, one.sha256) for one in others}


def hashed(found: Found, progress: Progress | None = None) -> tuple[FileInfo, ...]:
    """The files where they lie, with their digests."""

    def one(file: tuple[str, str, int]) -> FileInfo:
        name, key, size = file
        info = FileInfo(name, key, size, sha256_of(found.store, key))
        if progress is not None:
            progress(size)
        return info

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="marin-adopt") as pool:
        return tuple(pool.map(one, found.files))


def _copied(store: Store, found: Found, folder: str, progress: Progress | None) -> tuple[FileInfo, ...]:
    copies = [Transfer(name, found.store, key, size, "", f"{folder}/{name}") for name, key, size in found.files]
    return transfer(store, copies, progress)


def with_result(store: Store, record: Record, adoption: Adoption) -> Record:
    """The record of files with its result and output digest: as given, or as the class describes the files."""
    result = adoption.result
    describe = describer(adoption.kind)
    if result is None and describe is not None:
        files = Artifact()
        bind(files, store, record)
        result = encode(describe(files), home=store.url)
    checked = check_result(store, result, adoption.kind)

    def digest_of(reference: Reference) -> str:
        return _referred(store, reference)[1].output_digest

    return replace(record, result=checked, output_digest=output_digest(record.files, checked, digest_of))


def _referred(store: Store, reference: Reference) -> tuple[Store, Record]:
    home = open_store(reference["$prefix"]) if "$prefix" in reference else store
    return home, load_record(home, reference["$artifact"])


def check_result(store: Store, result: Any, kind: type[Artifact]) -> Any:
    """The result as a record holds it; `StepError` saying where it does not fit the class."""

    def load(reference: Reference, wanted: type[Artifact]) -> Artifact:
        return materialise_record(*_referred(store, reference), wanted)

    if not isinstance(result, dict):
        raise StepError(f"the result of a {kind.__name__} is a JSON object with its fields, got {result!r}")
    try:
        artifact = decode(result, kind, load)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StepError(f"the result does not fit {kind.__name__}: {type(error).__name__}: {error}") from error
    wrong = misfit_of_fields(artifact)
    if wrong is not None:
        raise StepError(f"the result does not fit {kind.__name__}: {wrong}")
    return encode(artifact, home=store.url)
