"""Where a document came from and what became of it, told from records and the rows beside it.

Imports pyarrow; import this module inside functions only.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from marin.data.consolidation.bundles import cell_stem
from marin.data.consolidation.predicates import explain
from marin.data.consolidation.prefix_records import PrefixRecords
from marin.data.documents.addresses import canonical_url
from marin.data.documents.artifacts import Attributes, Documents, DocumentShard
from marin.data.documents.lookup import matching_rows, read_row
from marin.data.documents.schema import COLUMNS, FATES
from marin.data.filtering.config import LanguageConfig, Rules
from marin.execution import Record, StepError
from marin.execution.codec import decode

_DOCUMENTS = "marin.data.documents.artifacts:Documents"
_ATTRIBUTES = "marin.data.documents.artifacts:Attributes"
_SHOWN_COLUMNS = tuple(name for name in COLUMNS if name != "text")
_BINARY = (bytes, bytearray)


@dataclass(frozen=True)
class Found:
    """A document as a step made it from its source.

    Attributes:
        record: the step.
        pages: its artifact.
        shard: the shard that holds the document.
        row: its place in the shard.
        columns: its columns but the text.
    """

    record: Record
    pages: Documents
    shard: DocumentShard
    row: int
    columns: dict[str, Any]

    @property
    def metadata(self) -> dict[str, Any]:
        """What its source said of it, such as the WARC file that it lay in."""
        found: dict[str, Any] = json.loads(self.columns["metadata"])
        return found


@dataclass(frozen=True)
class Verdict:
    """What one step has written beside the document: flat columns with ``reason``."""

    record: Record
    kind: str
    columns: dict[str, Any]


@dataclass(frozen=True)
class Copies:
    """What a step that finds duplicates says of a document.

    Attributes:
        survivor: the document that stays in its place, None when it stays itself or the survivor's pages are gone.
        removed: how many documents it stays in the place of, by reason.
    """

    survivor: Found | None
    removed: dict[str, int]


@dataclass(frozen=True)
class Fate:
    """What became of the document in one consolidation.

    Attributes:
        record: the step.
        clean: its artifact.
        reason: why the document was dropped, or None.
        why: more of it: the value and the limit, the document that stands in for it, the reason on the takedown list.
        shard: the clean shard that holds it, or None.
        row: its place there.
        cut_characters: how much of its text was cut, None where nothing was.
        left_characters: how much of it is repeated and stays, since what held it is not kept; None where nothing does.
    """

    record: Record
    clean: Documents
    reason: str | None
    why: str
    shard: DocumentShard | None
    row: int | None
    cut_characters: int | None = None
    left_characters: int | None = None


def find_documents(records: PrefixRecords, what: str) -> Iterator[Found]:
    """Every document of an id or a URL, in every step that made it from a source."""
    column = "url" if "://" in what else "id"
    return _matching(records, column, canonical_url(what) if column == "url" else what)


def _matching(records: PrefixRecords, column: str, wanted: str) -> Iterator[Found]:
    for record in records.of_type(_DOCUMENTS):
        pages = records.artifact(record, Documents)
        for shard in pages.shards:
            if shard.split:
                continue
            for row in matching_rows(pages, shard.name, column, lambda value: _matches(value, column, wanted)):
                yield Found(record, pages, shard, row, read_row(pages, shard.name, row, _SHOWN_COLUMNS))


def _matches(value: str | None, column: str, wanted: str) -> bool:
    if column == "id" or value is None:
        return value == wanted
    return value == wanted or canonical_url(value) == wanted


def verdicts(records: PrefixRecords, found: Found) -> Iterator[Verdict]:
    """What every step has written beside a document."""
    for record in records.of_type(_ATTRIBUTES):
        if not records.depends(record, found.record):
            continue
        attributes = records.artifact(record, Attributes)
        try:
            shard = attributes.shard_of(found.pages, found.shard)
        except KeyError:
            continue
        columns = read_row(attributes, shard.name, found.row)
        if columns["id"] != found.columns["id"]:
            raise StepError(f"row {found.row} of {shard.name} in {record.display} is of another document; verify it")
        yield Verdict(
            record, attributes.kind, {name: value for name, value in columns.items() if not isinstance(value, _BINARY)}
        )


def copies(records: PrefixRecords, found: Found, verdict: Verdict) -> Copies:
    """Whose copy a document is, or how many are its own, by what a step that finds duplicates wrote."""
    kept = verdict.columns["duplicate_of"]
    if kept is not None:
        others = _matching(records, "id", kept)
        return Copies(next((one for one in others if records.depends(verdict.record, one.record)), None), {})
    removed: Counter[str] = Counter()
    attributes = records.artifact(verdict.record, Attributes)
    for shard in attributes.shards:
        with attributes.open(shard.name) as stream:
            table = pq.ParquetFile(stream).read(columns=["reason", "duplicate_of"])
        own = table.filter(pc.equal(table.column("duplicate_of"), found.columns["id"]))
        removed.update(own.column("reason").to_pylist())
    return Copies(None, dict(sorted(removed.items())))


def passages(found: Found, verdict: Verdict) -> Iterator[tuple[int, int, str]]:
    """The spans of a document's text that a verdict marks: first character, the one behind the last, and the text."""
    begins, ends = verdict.columns.get("starts"), verdict.columns.get("ends")
    if not begins or not ends:
        return
    text: str = read_row(found.pages, found.shard.name, found.row, ("text",))["text"]
    for begin, end in zip(begins, ends, strict=True):
        yield begin, end, text[begin:end]


def fates(records: PrefixRecords, found: Found, judged: list[Verdict]) -> Iterator[Fate]:
    """What became of a document in every consolidation that it went into."""
    for record in records.of_type(_DOCUMENTS):
        if not records.depends(record, found.record):
            continue
        clean = records.artifact(record, Documents)
        row = _fate_row(clean, found)
        if row is None:
            yield from _fate_without_row(record, clean, found)
        elif row["reason"] is not None:
            yield Fate(record, clean, row["reason"], row["why"] or _limits(record, row["reason"], judged), None, None)
        else:
            stem = cell_stem(found.shard.source, row["split"], row["topic"], row["quality"], row["bundle"])
            shards = [shard for shard in clean.shards if shard.name.startswith(f"{stem}-")]
            place = _place(clean, shards, found.columns["id"])
            if place is None:
                raise StepError(
                    f"document {found.columns['id']} is said to lie in {stem}-*.parquet of {record.display}, and does "
                    "not; run marin verify"
                )
            yield Fate(record, clean, None, "", *place, row.get("cut_characters"), row.get("left_characters"))


def _fate_without_row(record: Record, clean: Documents, found: Found) -> Iterator[Fate]:
    """What can be told of a consolidation that wrote no fates: whether the document lies in it."""
    shards = [shard for shard in clean.shards if shard.split and shard.source == found.shard.source]
    place = _place(clean, shards, found.columns["id"])
    if place is not None:
        yield Fate(record, clean, None, "", *place)
    elif shards:
        yield Fate(record, clean, "unknown", "the step wrote no fates and does not hold it", None, None)


def _fate_row(clean: Documents, found: Found) -> dict[str, Any] | None:
    """The document's row in the fates of a consolidation; None where it wrote none."""
    # The folder's name is that of the pages it was run on, which may be another recipe's with equal bytes.
    for name in clean.names(f"{FATES}*"):
        if name.split("/", 2)[2] == found.shard.name:
            row = read_row(clean, name, found.row)
            if row["id"] == found.columns["id"]:
                return row
    return None


def _place(clean: Documents, shards: list[DocumentShard], document_id: str) -> tuple[DocumentShard, int] | None:
    """The shard, and the row of it, that holds a document."""
    for shard in shards:
        for row in matching_rows(clean, shard.name, "id", lambda value: value == document_id):
            return shard, row
    return None


def _limits(clean: Record, reason: str, judged: list[Verdict]) -> str:
    """The value and the limit that a document was dropped for."""
    for verdict in judged:
        if verdict.kind != "signals" or not any(one.identity == verdict.record.identity for one in clean.dependencies):
            continue
        policy = clean.recipe["config"]["config"]
        signals = verdict.record.recipe["config"]["config"]
        return explain(
            reason,
            verdict.columns,
            _setting(policy.get("rules") or signals.get("rules"), Rules),
            _setting(policy.get("language") or signals.get("language"), LanguageConfig),
        )
    return ""


def _setting(value: Any, kind: type[Any]) -> Any:
    """A setting of a record's recipe; None where it was written by a version with other fields."""
    try:
        return decode(value, kind, _no_artifact)
    except (KeyError, TypeError, ValueError):
        return None


def _no_artifact(reference: Any, kind: Any) -> Any:
    raise TypeError(f"settings hold no artifact ({reference})")
