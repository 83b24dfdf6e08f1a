"""Two records side by side: recipe, code, environment, output, evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from marin.execution.artifact import FileInfo
from marin.execution.planning.reading import RecordReader
from marin.execution.reasons.causes import Cause, Recipes, recorded
from marin.execution.reasons.comparison import Difference, compare
from marin.execution.reasons.earlier import READS, causes_between
from marin.execution.records import Flow, Record
from marin.storage import Store

OF_THE_RUN = ("run", "attempt", "epoch", "host", "started", "finished", "reason", "alias_of", "copied_from")
"""Parts of a record's provenance that tell of its making and not of the environment."""


@dataclass(frozen=True)
class FileChange:
    """An output file that is not the same: None on the side that does not have it."""

    name: str
    old: FileInfo | None
    new: FileInfo | None


@dataclass(frozen=True)
class RecordDiff:
    """What differs between two records. `causes` are the recipes' differences, followed upwards to where they began."""

    old: Record
    new: Record
    causes: tuple[Cause, ...]
    environment: tuple[Difference, ...]
    result: tuple[Difference, ...]
    files: tuple[FileChange, ...]
    flows: tuple[Difference, ...]

    @property
    def code_differs(self) -> bool:
        """Whether they were made by other code. Digests of two Python versions are not compared."""
        return codes_differ(self.old, self.new)

    @property
    def same_output(self) -> bool:
        """Whether a consumer sees the same."""
        return self.old.output_digest == self.new.output_digest

    @property
    def is_equal(self) -> bool:
        """Whether recipe, code, output and evidence are equal. Where and when the steps ran does not count."""
        same = not self.code_differs and self.same_output and self.old.identity == self.new.identity
        return same and not (self.causes or self.result or self.files or self.flows)


def diff_records(store: Store, old: Record, new: Record) -> RecordDiff:
    """Compare two records of a prefix. Reads the records above them, as far as they differ."""
    recipes = Recipes(RecordReader(READS))
    before, after = recipes.add(recorded(store, old)), recipes.add(recorded(store, new))
    same_recipe = before.identity == after.identity
    causes = () if same_recipe else causes_between(recipes, before.identity, after.identity)
    return RecordDiff(
        old,
        new,
        causes,
        values_differ(_environment(old), _environment(new)),
        values_differ(old.result, new.result),
        tuple(_file_changes(old, new)),
        values_differ(_counts(old.flows), _counts(new.flows)),
    )


def codes_differ(one: Record, other: Record) -> bool:
    """Whether two records were made by other code, as far as their digests can be compared."""
    digests = one.code_digest, other.code_digest
    return digests[0] != digests[1] and digests[0].partition(":")[0] == digests[1].partition(":")[0]


def values_differ(old: Any, new: Any) -> tuple[Difference, ...]:
    """The places where two JSON values differ."""
    return compare({"config": old}, {"config": new})


def _environment(record: Record) -> Mapping[str, Any]:
    return {name: value for name, value in record.provenance.items() if name not in OF_THE_RUN}


def _counts(flows: tuple[Flow, ...]) -> Mapping[str, Any]:
    return {flow.unit: {"read": flow.read, "kept": flow.kept, "dropped": flow.dropped} for flow in flows}


def _file_changes(old: Record, new: Record) -> Iterator[FileChange]:
    before, after = ({file.name: file for file in record.files} for record in (old, new))
    for name in sorted({**before, **after}):
        was, became = before.get(name), after.get(name)
        if was is None or became is None or (was.size, was.sha256) != (became.size, became.sha256):
            yield FileChange(name, was, became)
