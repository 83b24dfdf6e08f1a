"""One step call with its finished inputs as a file, from which any process can run it without the graph.

The call has the identity that it has in its graph, so its record answers there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from marin.execution.artifact import Artifact, call_of
from marin.execution.codec import Reference, decode, encode
from marin.execution.failures import StepError
from marin.execution.planning.plan import PlannedStep, record_of
from marin.execution.records import load_record, materialise_record
from marin.execution.running.commit import upstream_of
from marin.execution.running.resolve import resolve
from marin.execution.step import describe
from marin.storage import Store, open_store

A = TypeVar("A", bound=Artifact)

SCHEMA = 1


def call_file(step: PlannedStep, store: Store) -> dict[str, Any]:
    """The call of a planned step as plain data: where its inputs lie, and every setting, those of the run included.

    Raises `StepError` naming the inputs that have no record yet.
    """
    missing = [
        up.display for up in step.upstream if up.record is None and not (up.store or store).exists(up.record_key)
    ]
    if missing:
        raise StepError(f"{step.display} lacks inputs that are not there yet: {', '.join(missing)}; run them first")
    by_call = {id(call_of(artifact)): up for _, artifact, up in upstream_of(step)}

    def materialise(artifact: Artifact) -> Artifact:
        up = by_call.get(id(call_of(artifact)))
        if up is None:
            return artifact
        return materialise_record(up.store or store, record_of(up, store), up.call.step.result_type)

    arguments = {name: resolve(value, materialise) for name, value in step.call.arguments.items()}
    return {
        "schema": SCHEMA,
        "step": step.name,
        "version": step.call.step.version,
        "identity": step.identity,
        "label": step.call.label,
        "prefix": store.url,
        "arguments": encode(arguments, "arguments", home=store.url),
    }


def read_call(data: Any, function: Callable[..., A]) -> A:
    """The call of a file, unmaterialised, with its inputs read from the store.

    `function` is the step that the file must be a call of. Raises `StepError` when it is another one, or no call.
    """
    described = describe(function)
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or not isinstance(data.get("arguments"), dict):
        raise StepError(f"this is no file of a call of {described.name}: it has no arguments with schema {SCHEMA}")
    found = (data["step"], data["version"])
    if found != (described.name, described.version):
        raise StepError(
            f"the file is a call of {found[0]!r}, version {found[1]!r}; here {described.name!r}, version "
            f"{described.version!r}, is run: write the file with this version of the project"
        )
    home = open_store(data["prefix"])

    def load(reference: Reference, kind: type[Artifact]) -> Artifact:
        store = open_store(reference["$prefix"]) if "$prefix" in reference else home
        return materialise_record(store, load_record(store, reference["$artifact"]), kind)

    try:
        arguments = {
            name: decode(value, described.annotations[name], load, name) for name, value in data["arguments"].items()
        }
        artifact = function(**arguments)
    except (KeyError, TypeError, ValueError) as error:
        raise StepError(f"the file's arguments do not fit {described.name}: {type(error).__name__}: {error}") from error
    return artifact.label(data["label"]) if data.get("label") else artifact
