"""The commit of a step: its record, made from what its worker brought back, and early cutoff.

A record is created once. Whoever is second takes the first one's record, so a step that two holders finished has one
result, whole, and the other's files are litter.
"""

from __future__ import annotations

import json
import platform
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from marin.execution import layout
from marin.execution.artifact import Artifact, binding_of, call_of
from marin.execution.codec import Reference, qualified_name
from marin.execution.failures import StepError
from marin.execution.identity import digest
from marin.execution.planning.plan import PlannedStep, record_of
from marin.execution.records import Dependency, Record, load_record, output_digest
from marin.execution.running.claims import Claim, check_lease
from marin.execution.running.worker import Outcome, StepTask
from marin.storage import AlreadyExists, MissingObject, Store, open_store


@dataclass(frozen=True)
class Origin:
    """Who makes a record: the run, the attempt, the claim's epoch; and since when, in seconds since 1970."""

    run: str
    attempt: int
    claim: Claim
    started: float

    def provenance(self, **more: Any) -> dict[str, Any]:
        """What a record keeps of it."""
        return {
            "run": self.run,
            "attempt": self.attempt,
            "epoch": self.claim.epoch,
            "host": socket.gethostname(),
            "started": self.started,
            "finished": time.time(),
            "python": platform.python_version(),
            **more,
        }


def upstream_of(step: PlannedStep) -> list[tuple[str, Artifact, PlannedStep]]:
    """(path in the config, handle, step) of every dependency that the graph makes, in the recipe's order."""
    by_identity = {up.identity: up for up in step.upstream}
    listed = step.document["dependencies"]
    assert isinstance(listed, list)
    return [
        (path, artifact, by_identity[identity])
        for (path, artifact), (_, identity) in zip(step.recipe.dependencies, listed, strict=True)
        if call_of(artifact) is not None
    ]


def dependencies_of(step: PlannedStep, store: Store) -> tuple[Dependency, ...]:
    """The step's dependencies as its record keeps them. Their records must be there.

    Those that the graph makes come first, then those that were handed in finished.
    """
    records = [(path, record_of(up, store)) for path, _, up in upstream_of(step)]
    for path, artifact in step.recipe.dependencies:
        binding = binding_of(artifact)
        if binding is not None:
            records.append((path, binding.record))
    return tuple(
        Dependency(path, record.name, record.identity, record.key, record.output_digest) for path, record in records
    )


def new_record(step: PlannedStep, store: Store, task: StepTask, outcome: Outcome, origin: Origin) -> Record:
    """The record of an outcome; raises `StepError` when its evidence does not add up."""
    for flow in outcome.flows:
        flow.check(step.display)
    dependencies = dependencies_of(step, store)
    return Record(
        key=step.record_key,
        name=step.name,
        version=step.call.step.version,
        label=step.call.label,
        identity=step.identity,
        generation=step.generation,
        path=task.spec.attempt_folder,
        result_type=qualified_name(step.call.step.result_type),
        result=outcome.result,
        files=outcome.files,
        flows=outcome.flows,
        recipe=step.document,
        dependencies=dependencies,
        output_digest=output_digest(outcome.files, outcome.result, _digests(store, dependencies)),
        code_digest=task.spec.code_digest,
        provenance=origin.provenance(reason=step.reason),
        remarks=outcome.remarks,
    )


def _digests(store: Store, dependencies: tuple[Dependency, ...]) -> Callable[[Reference], str]:
    known = {dependency.record: dependency.output_digest for dependency in dependencies}

    def digest_of(reference: Reference) -> str:
        key = reference["$artifact"]
        if key in known:
            return known[key]
        home = open_store(reference["$prefix"]) if "$prefix" in reference else store
        return load_record(home, key).output_digest

    return digest_of


def commit(step: PlannedStep, store: Store, record: Record, claim: Claim) -> Record:
    """Create the record; when another run was first, take its record.

    One that was made from an earlier output of what the step reads is not taken: ours becomes the next generation.
    """
    while True:
        check_lease(store, claim)
        try:
            store.create(record.key, record.to_json())
            break
        except AlreadyExists:
            other = load_record(store, record.key)
            if is_made_from_what_lies_here(other, step, store):
                return other
        step.generation += 1
        record = replace(record, key=step.record_key, generation=step.generation)
    if step.call.step.cutoff:
        _offer(step, store, record)
    return record


def is_made_from_what_lies_here(record: Record, step: PlannedStep, store: Store) -> bool:
    """Whether a record of the step was made from the outputs that its upstreams have at present."""
    made_from = {dependency.identity: dependency.output_digest for dependency in record.dependencies}
    return all(made_from.get(up.identity) == record_of(up, store).output_digest for _, _, up in upstream_of(step))


# --- early cutoff ---


def content_of(step: PlannedStep, store: Store) -> str:
    """A digest of what the step reads: its recipe with the outputs of its dependencies in place of their recipes.

    Two recipes of a step that differ only further up, and whose inputs came out equal, have the same content.
    """
    read = [[path, record_of(up, store).output_digest] for path, _, up in upstream_of(step)]
    made = {path for path, _ in read}
    listed = step.document["dependencies"]
    assert isinstance(listed, list)
    return digest({**step.document, "dependencies": read, "given": [one for one in listed if one[0] not in made]})


def _offer(step: PlannedStep, store: Store, record: Record) -> None:
    """Let other recipes of the step find this record by its content."""
    body = json.dumps({"record": record.key}).encode()
    try:
        store.create(layout.content_key(content_of(step, store)), body)
    except AlreadyExists:  # an equal output is offered already
        return


def equal_work(step: PlannedStep, store: Store, origin: Origin, code_digest: str) -> Record | None:
    """A record of this step with the output of another recipe that read the same, or None when nobody made it yet."""
    if not step.call.step.cutoff or step.generation > 1:
        return None
    try:
        key = json.loads(store.read(layout.content_key(content_of(step, store))))["record"]
        found = load_record(store, key)
    except (MissingObject, StepError):  # not offered, or collected since
        return None
    gone = store.exists(layout.tombstone_key(found.name, found.identity, found.generation))
    same_code = code_digest.partition(":")[0] != found.code_digest.partition(":")[0] or code_digest == found.code_digest
    if gone or not same_code:
        return None
    return replace(
        found,
        key=step.record_key,
        label=step.call.label,
        identity=step.identity,
        generation=step.generation,
        recipe=step.document,
        dependencies=dependencies_of(step, store),
        provenance=origin.provenance(reason=step.reason, alias_of=key),
    )
