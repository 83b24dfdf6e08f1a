"""What became of the records of a source: counted by reason, with places, and said where people look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from marin.data.documents.artifacts import DocumentShard
from marin.data.sources.config import SourceConfig

PLACES_KEPT = 20
"""Places that are kept for each reason, the first ones."""

UNREAD = frozenset({"truncated", "damaged", "other_format"})
"""Reasons that stand for the rest of a file, of which nobody knows how many records it is."""

_FILES_SHOWN = 3
_STATES = {"truncated": "cut", "damaged": "damaged"}


@dataclass(frozen=True)
class UnreadFile:
    """A file that could not be read to its end.

    Attributes:
        name: its name.
        reason: why, one of `UNREAD`.
        records: records that were read of it before.
        last: place of the last of them, empty where there is none.
    """

    name: str
    reason: str
    records: int
    last: str

    def __str__(self) -> str:
        return f"{self.name} ({self.reason} behind {self.records} records)"


@dataclass(frozen=True)
class TaskResult:
    """What became of one task.

    Attributes:
        shards: its documents.
        records: records that were read, or could not be.
        dropped: those of which no document came, by reason.
        places: places of the first of these, by reason.
        unread: files that could not be read to their end.
        mended: documents of which something was replaced or taken out, by what it was.
        fields: names of the fields of the first record that has none with text.
    """

    shards: tuple[DocumentShard, ...]
    records: int
    dropped: dict[str, int]
    places: dict[str, tuple[str, ...]]
    unread: tuple[UnreadFile, ...]
    mended: dict[str, int]
    fields: tuple[str, ...]


@dataclass(frozen=True)
class Account:
    """What became of a source: the sums of all tasks, and the number of files."""

    files: int
    records: int
    dropped: dict[str, int]
    places: dict[str, tuple[str, ...]]
    unread: tuple[UnreadFile, ...]
    mended: dict[str, int]
    fields: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As it is kept beside the documents."""
        return {
            "files": self.files,
            "records": self.records,
            "dropped": self.dropped,
            "places": self.places,
            "files_unread": [asdict(file) for file in self.unread],
            "mended": self.mended,
        }

    @property
    def remark(self) -> str:
        """What people must know of a source that was not read to its end; empty for a whole one."""
        if not self.unread:
            return ""
        states = {_STATES.get(file.reason) for file in self.unread}
        state = states.pop() if len(states) == 1 else None
        names = {file.name for file in self.unread}
        shown = ", ".join(map(str, self.unread[:_FILES_SHOWN])) + (", …" if len(self.unread) > _FILES_SHOWN else "")
        return f"{len(names)} of {self.files} files {state or 'not read to the end'}, what followed is lost: {shown}"


def summed(results: Sequence[TaskResult], files: int) -> Account:
    """The account of a source from those of its tasks, in order."""
    places: dict[str, list[str]] = {}
    for result in results:
        for reason, found in result.places.items():
            places.setdefault(reason, []).extend(found)
    return Account(
        files=files,
        records=sum(result.records for result in results),
        dropped=_sums(result.dropped for result in results),
        places={reason: tuple(found[:PLACES_KEPT]) for reason, found in sorted(places.items())},
        unread=tuple(file for result in results for file in result.unread),
        mended=_sums(result.mended for result in results),
        fields=next((result.fields for result in results if result.fields), ()),
    )


def _sums(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(sorted(total.items()))


def why_nothing(config: SourceConfig, account: Account) -> str:
    """Why no document came out of a source, and the way out."""
    if not account.records:
        held = "its dataset has no rows" if config.dataset is not None else f"its files are empty ({account.files})"
        return f"source {config.source!r} holds no record at all: {held}; give it some, or take the source out"
    reasons = ", ".join(f"{reason} {count}" for reason, count in account.dropped.items())
    return (
        f"no document came out of the {account.records} records of source {config.source!r}: {reasons}; "
        f"{_hint(config, account)}"
    )


def _hint(config: SourceConfig, account: Account) -> str:
    most = max(account.dropped, key=lambda reason: (account.dropped[reason], reason not in UNREAD))
    place = account.places[most][0]
    if most == "other_format":
        return f"{place} is parquet: set source.format to 'parquet', which is {config.format!r}"
    if most in UNREAD:
        return f"{account.remark}; get such files again"
    if config.format in ("text", "wikipedia"):
        return f"the first such one is {place}"
    if most == "no_text":
        seen = f"; {place} has the fields {', '.join(account.fields)}" if account.fields else ""
        return f"is text_field {config.text_field!r} right?{seen}"
    if most == "wrong_type":
        return f"text_field {config.text_field!r} holds something other than text in {place}; name the field with text"
    if most in ("broken_line", "no_object"):
        return f"{place} is no record of format {config.format!r}; is source.format right?"
    return f"the first such one is {place}"
