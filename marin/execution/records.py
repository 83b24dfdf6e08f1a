"""Commit records: the only answer to whether a step is done, and what it made."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from marin.execution import layout
from marin.execution.artifact import Artifact, FileInfo, bind
from marin.execution.codec import Reference, decode, without_references
from marin.execution.failures import StepError
from marin.execution.identity import digest
from marin.storage import MissingObject, Store, open_store

SCHEMA = 1


@dataclass(frozen=True)
class Flow:
    """Evidence that nothing got lost: what was read, what was kept, and why the rest was dropped, in `unit`s."""

    unit: str
    read: int
    kept: int
    dropped: dict[str, int] = field(default_factory=dict)

    def check(self, step: str) -> None:
        """Raise `StepError` unless read = kept + Σ dropped."""
        lost = self.read - self.kept - sum(self.dropped.values())
        if lost or self.read < 0 or self.kept < 0 or any(count < 0 for count in self.dropped.values()):
            raise StepError(
                f"{step} does not account for its {self.unit}: read {self.read}, kept {self.kept}, "
                f"dropped {self.dropped}: {lost} unaccounted for"
            )


@dataclass(frozen=True)
class Dependency:
    """One upstream artifact as the step saw it: where in the config, which recipe, which output."""

    path: str
    name: str
    identity: str
    record: str
    output_digest: str


@dataclass(frozen=True)
class Record:
    """A committed step. `key` is the record's own key; `recipe` the identity document that was hashed.

    `remarks` are what the step wants people to know although it ended well, such as an input that was cut.
    """

    key: str
    name: str
    version: str
    label: str | None
    identity: str
    generation: int
    path: str
    result_type: str
    result: Any
    files: tuple[FileInfo, ...]
    flows: tuple[Flow, ...]
    recipe: Any
    dependencies: tuple[Dependency, ...]
    output_digest: str
    code_digest: str
    provenance: dict[str, Any]
    remarks: tuple[str, ...] = ()

    @property
    def display(self) -> str:
        """The step as people call it."""
        return f"{self.name}-{layout.short(self.identity)}" + (f" ({self.label})" if self.label else "")

    @property
    def size(self) -> int:
        """Bytes of all output files."""
        return sum(file.size for file in self.files)

    @property
    def remedy(self) -> str:
        """What to do when the files are gone."""
        if "adopted" in self.provenance:
            words = f"--name {self.name} --version {self.version} --type {self.result_type}"
            return f"adopt it again: marin adopt PATH {words}"
        return f"redo the step: --force '^{self.name}$'"

    def to_json(self) -> bytes:
        """The record as it lies in the store: a line for each field, and one for each file."""
        body: dict[str, Any] = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        del body["key"], body["files"]
        if not self.remarks:  # most have none, and such a record can be read by versions without this field
            del body["remarks"]
        for name in ("flows", "dependencies"):
            body[name] = [vars(item) for item in body[name]]
        lines = [f'"schema": {SCHEMA}', *(f'"{name}": {_line(body[name])}' for name in sorted(body))]
        files = ",\n  ".join(_line(vars(file)) for file in self.files)
        return ("{" + ",\n ".join([*lines, f'"files": [{files}]']) + "}\n").encode()

    @staticmethod
    def from_json(key: str, data: bytes) -> Record:
        """The record of a store's object; raises `StepError` naming the object when it is damaged."""
        try:
            body = json.loads(data)
            if body.pop("schema") != SCHEMA:
                raise ValueError("unknown schema")
            body["files"] = tuple(FileInfo(**file) for file in body["files"])
            body["flows"] = tuple(Flow(**flow) for flow in body["flows"])
            body["remarks"] = tuple(body.get("remarks", ()))
            body["dependencies"] = tuple(Dependency(**dependency) for dependency in body["dependencies"])
            return Record(key=key, **body)
        except (ValueError, KeyError, TypeError) as error:
            raise StepError(f"the record {key} is damaged ({error}); redo its step: --verify does that") from error


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


def _line(value: Any) -> str:
    return _ENCODER.encode(value)


def load_record(store: Store, key: str) -> Record:
    """Read a record; `StepError` when there is none."""
    try:
        return Record.from_json(key, store.read(key))
    except MissingObject as error:
        raise StepError(f"there is no record {store.url_of(key)}") from error


def output_digest(files: tuple[FileInfo, ...], result: Any, digest_of: Callable[[Reference], str]) -> str:
    """One digest of all that a consumer can see: files by name, size and sha256, and the result.

    An artifact that the result refers to counts by its own output, not by the recipe that made it.
    """
    seen = without_references(result, lambda reference: {"$output": digest_of(reference)})
    return digest({"files": sorted([file.name, file.size, file.sha256] for file in files), "result": seen})


def materialise_record(store: Store, record: Record, kind: type[Artifact]) -> Artifact:
    """The artifact of a record, bound to its files."""

    def load(reference: Reference, wanted: type[Artifact]) -> Artifact:
        home = open_store(reference["$prefix"]) if "$prefix" in reference else store
        return materialise_record(home, load_record(home, reference["$artifact"]), wanted)

    try:
        artifact: Artifact = decode(record.result, kind, load)
    except (KeyError, TypeError, ValueError) as error:
        raise StepError(
            f"the result of {record.display} does not fit {kind.__name__} ({type(error).__name__}: {error}): the class "
            f"changed after the step ran; bump the version of {record.name}, or redo it: --force '^{record.name}$'"
        ) from error
    bind(artifact, store, record)
    return artifact
