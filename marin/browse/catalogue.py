"""What a prefix holds, read from its records alone: the web view shows nothing that a record does not vouch for."""

from __future__ import annotations

import time
from dataclasses import dataclass

from marin.execution import layout
from marin.execution.artifact import FileInfo
from marin.execution.failures import StepError
from marin.execution.records import Record
from marin.storage import Store, StoreError


@dataclass(frozen=True)
class StepEntry:
    """One finished step: the record of its highest generation. `slug` names it in addresses."""

    slug: str
    record: Record

    @property
    def finished(self) -> str:
        """When the step was committed, in UTC, as `2026-11-30 10:00:05`."""
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(self.record.provenance["finished"]))

    def file(self, name: str) -> FileInfo | None:
        """The output file of exactly that name."""
        return next((file for file in self.record.files if file.name == name), None)

    def reports(self) -> list[FileInfo]:
        """The HTML pages among the output files."""
        return [file for file in self.record.files if file.name.endswith(".html")]


@dataclass(frozen=True)
class Snapshot:
    """The state of a prefix at one look: finished steps, claims without a record, failures, unreadable records."""

    steps: tuple[StepEntry, ...]
    claimed: tuple[str, ...]
    failures: tuple[str, ...]
    unreadable: tuple[str, ...]

    def step(self, slug: str) -> StepEntry | None:
        """The finished step of that slug."""
        return next((entry for entry in self.steps if entry.slug == slug), None)

    def upstream(self, entry: StepEntry) -> list[StepEntry]:
        """The finished steps that this one was made from."""
        identities = {dependency.identity for dependency in entry.record.dependencies}
        return [other for other in self.steps if other.record.identity in identities]

    def downstream(self, entry: StepEntry) -> list[StepEntry]:
        """The finished steps that were made from this one."""
        return [other for other in self.steps if entry in self.upstream(other)]


class Catalogue:
    """Looks at a prefix. Records never change once written, so each is read once; listings are always fresh."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._records: dict[str, Record] = {}

    def look(self) -> Snapshot:
        """List the prefix and read the records that were not there at the last look."""
        newest: dict[str, StepEntry] = {}
        unreadable = []
        for key in self._keys(layout.RECORDS):
            parts = layout.parse_record_key(key)
            if parts is None or parts[3]:
                continue
            slug = f"{parts[0]}-{parts[1]}"
            try:
                entry = StepEntry(slug, self._record(key))
            except (StepError, StoreError) as error:
                unreadable.append(str(error))
                continue
            if slug not in newest or newest[slug].record.generation < entry.record.generation:
                newest[slug] = entry
        return Snapshot(
            steps=tuple(sorted(newest.values(), key=lambda entry: (entry.record.provenance["finished"], entry.slug))),
            claimed=tuple(slug for slug in self._claimed() if slug not in newest),
            failures=tuple(self._keys(layout.FAILED)),
            unreadable=tuple(unreadable),
        )

    def _keys(self, folder: str) -> list[str]:
        return sorted(info.key for info in self.store.list(folder))

    def _record(self, key: str) -> Record:
        if key not in self._records:
            self._records[key] = Record.from_json(key, self.store.read(key))
        return self._records[key]

    def _claimed(self) -> list[str]:
        """Slugs whose newest claim is not released: at work, or left by a run that died."""
        held: dict[str, set[str]] = {}
        for key in self._keys(layout.CLAIMS):
            slug, _, name = key.removeprefix(layout.CLAIMS + "/").rpartition("/")
            held.setdefault(slug, set()).add(name)
        return [slug for slug, names in sorted(held.items()) if not _newest_is_released(names)]


def _newest_is_released(names: set[str]) -> bool:
    epochs = [name.removesuffix(".json") for name in names if name.endswith(".json")]
    return not epochs or f"{max(epochs)}.released" in names
