"""The records of a prefix as a graph: which step was made from which."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TypeVar

from marin.execution import Artifact, Record, layout
from marin.execution.planning.index import list_records
from marin.execution.planning.record_stream import stream_records
from marin.execution.records import materialise_record
from marin.storage import Store

A = TypeVar("A", bound=Artifact)


class PrefixRecords:
    """The newest record of every step of a prefix, read once. Records that are damaged are in ``damaged``."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.damaged: list[str] = []
        self._records: list[Record] = []
        self._users: dict[str, list[Record]] = defaultdict(list)
        index = list_records(store)
        keys = [layout.record_key(*step, generation) for step, generation in sorted(index.generations.items())]
        for key, record in stream_records(store, keys):
            if isinstance(record, Record):
                self._records.append(record)
                for upstream in {dependency.identity for dependency in record.dependencies}:
                    self._users[upstream].append(record)
            else:
                self.damaged.append(key)

    def of_type(self, *result_types: str) -> Iterator[Record]:
        """Records of steps that gave an artifact of one of these classes (``module:class``)."""
        yield from (record for record in self._records if record.result_type in result_types)

    def upstream_of(self, record: Record) -> list[Record]:
        """The steps that a step was made from directly, as far as they are in this prefix."""
        wanted = {dependency.identity for dependency in record.dependencies}
        return [one for one in self._records if one.identity in wanted]

    def users_of(self, record: Record) -> list[Record]:
        """The steps that were made from a step directly."""
        return self._users[record.identity]

    def below(self, record: Record) -> list[Record]:
        """All steps that were made from a step, directly or through others; nearest first."""
        found: dict[str, Record] = {}
        waiting = self.users_of(record)
        while waiting:
            fresh = {one.identity: one for one in waiting if one.identity not in found}
            found |= fresh
            waiting = [user for one in fresh.values() for user in self.users_of(one)]
        return list(found.values())

    def depends(self, record: Record, upstream: Record) -> bool:
        """Whether a step was made from another one directly."""
        return any(dependency.identity == upstream.identity for dependency in record.dependencies)

    def artifact(self, record: Record, kind: type[A]) -> A:
        """The artifact of a record."""
        artifact = materialise_record(self.store, record, kind)
        assert isinstance(artifact, kind)
        return artifact
