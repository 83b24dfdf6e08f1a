"""Copying a finished step from another prefix into this one: its files, and last its record.

Steps are the same in every prefix, so a copy answers like one that was made here. The records of upstream steps are not
needed for that; steps that the result refers to are, and come along.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from marin.execution import layout
from marin.execution.codec import Reference, references, without_references
from marin.execution.failures import StepError
from marin.execution.planning.index import find_records
from marin.execution.records import Record, load_record
from marin.execution.upkeep.adoption import COPY
from marin.execution.upkeep.custody import Custodian
from marin.execution.upkeep.transfer import Progress, Transfer, transfer
from marin.storage import AlreadyExists, Store


@dataclass(frozen=True)
class CopyStep:
    """A step to copy, with the generation that its record will be here."""

    record: Record
    generation: int

    @property
    def folder(self) -> str:
        """The step's folder."""
        return layout.step_folder(self.record.name, self.record.label, self.record.identity)

    @property
    def attempt(self) -> str:
        """Where its files go: the folder of the attempt that made it, the same in every copy that goes on later."""
        provenance = self.record.provenance
        return layout.attempt_folder(self.folder, provenance["attempt"], provenance["run"])

    @property
    def key(self) -> str:
        """The record's key here."""
        return layout.record_key(self.record.name, self.record.identity, self.generation)


@dataclass(frozen=True)
class CopyPlan:
    """What a copy brings: steps in an order in which their references lead to what is there already.

    `there` maps keys of records of the other prefix to keys of equal ones of this prefix.
    """

    source: Store
    target: Store
    steps: tuple[CopyStep, ...]
    there: dict[str, str]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(step.record.size for step in self.steps)

    @property
    def files(self) -> int:
        """Number of files."""
        return sum(len(step.record.files) for step in self.steps)


def plan_copy(source: Store, target: Store, record: Record) -> CopyPlan:
    """What has to be copied for a record of another prefix to answer here; nothing when a record here answers.

    Raises `StepError` when the other prefix has no bytes of a step that is needed, or this prefix has another output
    of one that the result refers to.
    """
    there: dict[str, str] = {}
    found: dict[str, CopyStep] = {}
    stack: list[tuple[Record, int | None]] = [(record, None)]
    while stack:
        one, generation = stack.pop()
        if generation is not None:  # everything that it refers to is planned
            found[one.key] = CopyStep(one, generation)
        if one.key in found or one.key in there:
            continue
        here, own = _answer(target, one)
        if own is not None:
            if one.key != record.key and own.output_digest != one.output_digest:
                raise StepError(
                    f"the result of {record.display} refers to {one.display}, of which {target.url} has another "
                    f"output; run {record.name} there instead of copying it"
                )
            there[one.key] = own.key
            continue
        if find_records(source, [(one.name, one.identity)]).is_tombstoned(one.name, one.identity, one.generation):
            raise StepError(f"{one.display} has no bytes in {source.url} any more (tombstone), so it cannot be copied")
        stack.append((one, here + 1))
        stack.extend((load_record(source, reference["$artifact"]), None) for reference in _at_home(one))
    return CopyPlan(source, target, tuple(found.values()), there)


def _at_home(record: Record) -> list[Reference]:
    """What a record's result refers to in its own prefix."""
    return [reference for reference in references(record.result) if "$prefix" not in reference]


def _answer(store: Store, record: Record) -> tuple[int, Record | None]:
    """(the newest generation of a record's step in a prefix, its record if it has bytes)."""
    index = find_records(store, [(record.name, record.identity)])
    generation = index.generation(record.name, record.identity)
    if not generation or index.is_tombstoned(record.name, record.identity, generation):
        return generation, None
    return generation, load_record(store, layout.record_key(record.name, record.identity, generation))


def carry_out_copy(plan: CopyPlan, progress: Progress | None = None) -> list[Record]:
    """Copy; returns the records here. Run again after a kill, it goes on with the files that are not whole yet.

    Raises `StepError` when a run holds a step or a file is damaged in the other prefix.
    """
    made: list[Record] = []
    there = dict(plan.there)
    with Custodian(plan.target) as custodian:
        for step in plan.steps:
            record = _copy(plan, step, custodian, there, progress)
            there[step.record.key] = record.key
            made.append(record)
    return made


def _copy(
    plan: CopyPlan, step: CopyStep, custodian: Custodian, there: dict[str, str], progress: Progress | None
) -> Record:
    record = step.record
    with custodian.held(record.name, record.identity, step.generation, step.folder) as claim:
        wanted = [
            Transfer(file.name, plan.source, file.key, file.size, file.sha256, f"{step.attempt}/{file.name}")
            for file in record.files
        ]
        files = transfer(plan.target, wanted, progress)
        copied = replace(
            record,
            key=step.key,
            generation=step.generation,
            path=step.attempt,
            files=files,
            result=without_references(record.result, _translation(plan, there)),
            provenance=_provenance(record, claim.epoch, plan.source.url),
        )
        try:
            plan.target.create(copied.key, copied.to_json())
        except AlreadyExists:  # a run made it meanwhile
            return load_record(plan.target, copied.key)
        custodian.forget(claim)
    return copied


def _provenance(record: Record, epoch: int, url: str) -> dict[str, Any]:
    """Where a copy comes from; the epoch is one of this prefix, and files that were adopted are a copy here."""
    own = {"adopted": {**record.provenance["adopted"], "by": COPY}} if "adopted" in record.provenance else {}
    return {**record.provenance, "epoch": epoch, "copied_from": url, **own}


def _translation(plan: CopyPlan, there: dict[str, str]) -> Callable[[Reference], Any]:
    """References of the other prefix as they are here."""

    def translated(reference: Reference) -> Any:
        home = reference.get("$prefix", plan.source.url)
        if home == plan.source.url:
            return {"$artifact": there[reference["$artifact"]]}
        return {"$artifact": reference["$artifact"]} if home == plan.target.url else dict(reference)

    return translated
