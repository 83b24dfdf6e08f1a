"""Artifacts: typed results of steps that are their own lazy handles.

A class like `Documents` plays two parts. In a graph, a call of a step returns an *unmaterialised* instance: it knows
which call will make it and nothing else. In a step's body every such argument arrives *materialised*: its fields are
set, and its files can be opened. So a wrong wiring is a type error, and no wrapper type stands between them.
"""

from __future__ import annotations

import fnmatch
import functools
import hashlib
import json
import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self, cast

from marin.execution import layout
from marin.execution.failures import StepError
from marin.execution.fleet import Fleet
from marin.storage import MissingObject, Store

if TYPE_CHECKING:
    from marin.execution.records import Record
    from marin.execution.step import StepCall


@dataclass(frozen=True)
class FileInfo:
    """One output file: its name within the artifact, its key in the store, its size in bytes, its sha256 in hex."""

    name: str
    key: str
    size: int
    sha256: str


class Binding:
    """What makes an artifact materialised: the store, and the record that lists its files.

    It pickles as the record's address, and reads the record again when it is first needed: a thousand shard tasks do
    not carry a list of a thousand files each.
    """

    def __init__(self, store: Store, key: str, record: Record | None = None) -> None:
        self.store = store
        self.key = key
        if record is not None:
            self.__dict__["record"] = record

    @functools.cached_property
    def record(self) -> Record:
        """The record that made the artifact."""
        from marin.execution.records import load_record

        return load_record(self.store, self.key)

    @functools.cached_property
    def files(self) -> dict[str, FileInfo]:
        """Output files by name."""
        return {file.name: file for file in self.record.files}

    def __reduce__(self) -> tuple[Any, ...]:
        return Binding, (self.store, self.key)


class Unmaterialised(AttributeError):
    """A field of a lazy handle was read while the graph was being built."""


class Artifact:
    """Base of every artifact class. Subclasses are frozen, keyword-only dataclasses without field defaults.

    Fields are small and JSON-like, or other artifacts (kept by reference); bulk data lies in the files.
    """

    if TYPE_CHECKING:
        _call: StepCall
        _binding: Binding
    else:  # type checkers must go on refusing unknown fields

        def __getattr__(self, name):
            call = self.__dict__.get("_call")
            if call is not None and not name.startswith("_"):
                raise Unmaterialised(
                    f"{type(self).__name__}.{name} of the step {call.name!r} is known only after the step has run; "
                    "pass the artifact itself to the step that needs it"
                )
            raise AttributeError(f"{type(self).__name__} has no field {name!r}")

    # --- in a graph ---

    def label(self, label: str) -> Self:
        """The same artifact with a name for people in its path. Never part of identity."""
        if not label or "/" in label:
            raise ValueError(f"a label is one path part without slashes, got {label!r}")
        return self._with_call(replace(self._call, label=label))

    def on(self, fleet: Fleet) -> Self:
        """The same artifact, made on these machines. Never part of identity."""
        return self._with_call(replace(self._call, fleet=fleet))

    def _with_call(self, call: StepCall) -> Self:
        return cast(Self, handle_of(type(self), call))

    # --- in a step's body ---

    @property
    def identity(self) -> str:
        """The 64 hex digits of the recipe that made this."""
        return self._bound().record.identity

    def _bound(self) -> Binding:
        binding = self.__dict__.get("_binding")
        if binding is None:
            raise StepError(f"this {type(self).__name__} is not bound to a record: it was made by hand, or not yet run")
        return cast(Binding, binding)

    def _file(self, name: str) -> tuple[Store, FileInfo]:
        binding = self._bound()
        try:
            return binding.store, binding.files[name]
        except KeyError:
            names = ", ".join(sorted(binding.files)[:12]) or "none"
            raise StepError(f"{binding.record.display} has no file {name!r}; it has {names}") from None

    def _check_size(self, store: Store, file: FileInfo) -> None:
        found = store.size(file.key)
        if found == file.size:
            return
        record = self._bound().record
        if store.exists(layout.tombstone_key(record.name, record.identity, record.generation)):
            raise StepError(
                f"the bytes of {record.display} were removed on purpose (tombstone); a run whose steps need them makes "
                f"them again; to have them now, {record.remedy}"
            )
        state = "is missing" if found is None else f"has {found} bytes, its record says {file.size}"
        raise StepError(
            f"the output {file.name!r} of {record.display} {state} ({store.url_of(file.key)}); {record.remedy}"
        )

    def names(self, pattern: str = "*") -> list[str]:
        """Names of the files that match a shell pattern, sorted; `*` matches slashes too."""
        return sorted(name for name in self._bound().files if fnmatch.fnmatchcase(name, pattern))

    def file_info(self, name: str) -> FileInfo:
        """Key, size and digest of one file."""
        return self._file(name)[1]

    def open(self, name: str) -> BinaryIO:
        """A readable, seekable stream over a file; raises `StepError` when its size is not the recorded one."""
        store, file = self._file(name)
        self._check_size(store, file)
        return store.open(file.key)

    def read(self, name: str) -> bytes:
        """The whole of a file."""
        store, file = self._file(name)
        try:
            data = store.read(file.key)
        except MissingObject:
            self._check_size(store, file)
            raise
        if len(data) != file.size:
            self._check_size(store, file)
        return data

    def read_json(self, name: str) -> Any:
        """The value of a JSON file."""
        return json.loads(self.read(name))

    def url(self, name: str) -> str:
        """A file's address for fsspec."""
        store, file = self._file(name)
        return store.url_of(file.key)

    def local(self, name: str) -> Path:
        """A file as a path of this machine: itself on a local store, otherwise a download kept by its digest."""
        store, file = self._file(name)
        path = store.local_path(file.key)
        if path is not None:
            self._check_size(store, file)
            return path
        cache = Path(tempfile.gettempdir()) / f"marin-cache-{os.getuid()}"
        cached = cache / file.sha256
        if not (cached.exists() and cached.stat().st_size == file.size):
            cache.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                _download(store, file, cached)
            except MissingObject:
                self._check_size(store, file)
                raise
        return cached

    def present(self, places: dict[str, str]) -> Any:
        """What the console prints when this is the target of a run: text, or anything that rich can print.

        `places` says where things lie, by what they are.
        """
        lying = [f"{what}: {where}" for what, where in places.items()]
        fields = [f"{name}: {_shown(value)}" for name, value in self.__dict__.items() if not name.startswith("_")]
        return "\n".join([*fields, *lying])


def _shown(value: Any) -> str:
    """A field for people: of a long list, how much it holds."""
    if isinstance(value, (tuple, list, dict)) and len(value) > 3:
        kinds = {type(one).__name__ for one in (value.values() if isinstance(value, dict) else value)}
        return f"{len(value)} × {' and '.join(sorted(kinds))}"
    return repr(value)


def _download(store: Store, file: FileInfo, target: Path) -> None:
    digest = hashlib.sha256()
    with store.open(file.key) as source, tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as partial:
        while chunk := source.read(1 << 22):
            digest.update(chunk)
            partial.write(chunk)
    if digest.hexdigest() != file.sha256:
        os.unlink(partial.name)
        raise StepError(f"{store.url_of(file.key)} does not have the digest that its record says; redo its step")
    os.replace(partial.name, target)


@functools.cache
def _handle_class(kind: Any) -> type[Artifact]:
    """The lazy form of an artifact class: equal only to itself, printable without its fields."""

    def show(self: Artifact) -> str:
        return f"<{kind.__name__} of {self._call.name}, not materialised>"

    members = {
        "__repr__": show,
        "__eq__": object.__eq__,
        "__hash__": object.__hash__,
        "__module__": kind.__module__,
        "__doc__": kind.__doc__,
        "_artifact_class": kind,
    }
    return type(kind.__name__, (kind,), members)


def handle_of(kind: type[Artifact], call: StepCall) -> Artifact:
    """An unmaterialised instance of an artifact class."""
    handle_class: type[Artifact] = kind if "_artifact_class" in kind.__dict__ else _handle_class(cast(Any, kind))
    handle = object.__new__(handle_class)
    object.__setattr__(handle, "_call", call)
    return handle


def call_of(artifact: Artifact) -> StepCall | None:
    """The step call behind a lazy handle, or None for a materialised artifact."""
    return artifact.__dict__.get("_call")


def bind(artifact: Artifact, store: Store, record: Record) -> None:
    """Make an artifact materialised."""
    object.__setattr__(artifact, "_binding", Binding(store, record.key, record))


def binding_of(artifact: Artifact) -> Binding | None:
    """The binding of a materialised artifact, if it has one."""
    return artifact.__dict__.get("_binding")
