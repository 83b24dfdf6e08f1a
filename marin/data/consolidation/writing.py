"""Writing the documents that stay, and the fates of all.

Imports pyarrow; import this module inside step bodies only.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from marin.data.consolidation.config import Policy
from marin.data.consolidation.fates import write_fates
from marin.data.consolidation.report import Sample
from marin.data.documents.artifacts import Documents, DocumentShard
from marin.data.documents.io import DocumentWriter, iterate_batches
from marin.data.documents.licences import licence_of
from marin.data.documents.schema import text_hash
from marin.data.filtering.pii import mask
from marin.execution import Flow, StepError, current_run

_BUNDLE_BYTES = 128 * 1024**2
_ROW_GROUP_BYTES = 16 * 1024**2
"""A worker holds up to one row group of every cell."""
_EXCERPT = 600


@dataclass(frozen=True)
class Part:
    """One document shard with the fate of its documents; every tuple has an entry a row.

    Attributes:
        pages: the artifact of the shard.
        shard: the shard.
        reasons: why each is dropped, or None.
        whys: see `FATES_SCHEMA`.
        splits: the split of each.
        buckets: the quality bucket of each.
        topics: the topic of each.
        languages: the language of each.
        samples: for rows that the report shows, the label they stand under and what decided it.
    """

    pages: Documents
    shard: DocumentShard
    reasons: tuple[str | None, ...]
    whys: tuple[str | None, ...]
    splits: tuple[str, ...]
    buckets: tuple[int, ...]
    topics: tuple[int, ...]
    languages: tuple[str, ...]
    samples: dict[int, tuple[str, str]]


@dataclass(frozen=True)
class Bundle:
    """Shards of one source that are written together, so that small ones do not give small files. Pickles."""

    number: int
    source: str
    parts: tuple[Part, ...]
    mask_addresses: bool
    licence: str


@dataclass(frozen=True)
class Written:
    """What one bundle came back with; ``licences`` has (fate, licence, documents)."""

    shards: tuple[DocumentShard, ...]
    samples: tuple[Sample, ...]
    licences: tuple[tuple[str, str, int], ...]
    emails: int
    ips: int


def bundles_of(parts: Sequence[Part], policy: Policy) -> list[Bundle]:
    """The parts of each source in bundles of about equal size, large enough for a whole file of each cell."""
    cells = {cell for part in parts for cell in zip(part.topics, part.buckets, strict=True)}
    enough = max(_BUNDLE_BYTES, len(cells) * _ROW_GROUP_BYTES)
    by_source: dict[str, list[Part]] = defaultdict(list)
    for part in parts:
        by_source[part.shard.source].append(part)
    bundles: list[Bundle] = []
    for source in sorted(by_source):
        chosen: list[Part] = []
        licence = policy.licence.default_of(source)
        for at, part in enumerate(by_source[source]):
            chosen.append(part)
            last = at == len(by_source[source]) - 1
            if last or sum(one.shard.text_bytes for one in chosen) >= enough:
                bundles.append(Bundle(len(bundles), source, tuple(chosen), policy.mask_addresses, licence))
                chosen = []
    return bundles


def cell_stem(source: str, split: str, topic: int, quality: int, bundle: int) -> str:
    """How the names begin of the files that hold one cell of a bundle."""
    return f"{split}/{quote(source, safe='')}/c{topic:02d}q{quality}/{bundle:05d}"


def write_bundle(bundle: Bundle) -> Written:
    """Write the documents that stay, one file for each split, topic and bucket, in one pass over the shards."""
    run = current_run()
    samples: list[Sample] = []
    licences: Counter[tuple[str, str]] = Counter()
    done = emails = ips = 0
    total = sum(part.shard.rows for part in bundle.parts)
    with ExitStack() as stack:
        cells: dict[tuple[str, int, int], _CellWriter] = {}
        for part in bundle.parts:
            start = kept = 0
            ids: list[str] = []
            for batch in iterate_batches(part.pages, part.shard):
                ids.extend(batch.column("id").to_pylist())
                samples.extend(_samples(part, start, batch))
                for at, metadata in enumerate(batch.column("metadata").to_pylist(), start):
                    fate = "kept" if part.reasons[at] is None else "dropped"
                    licences[fate, licence_of(metadata, bundle.licence)] += 1
                table, found_emails, found_ips = _finished(part, start, batch, bundle.mask_addresses)
                emails, ips = emails + found_emails, ips + found_ips
                end = start + batch.num_rows
                keys = [
                    (part.splits[at], part.topics[at], part.buckets[at])
                    for at in range(start, end)
                    if part.reasons[at] is None
                ]
                for key in sorted(set(keys)):
                    if key not in cells:
                        split, topic, bucket = key
                        writer = DocumentWriter(
                            run.write,
                            cell_stem(bundle.source, split, topic, bucket, bundle.number),
                            source=bundle.source,
                            split=split,
                            quality=bucket,
                            topic=topic,
                            consolidated=True,
                            row_group_bytes=_ROW_GROUP_BYTES,
                        )
                        cells[key] = stack.enter_context(_CellWriter(stack.enter_context(writer)))
                    cells[key].add(table.filter(pa.array([one == key for one in keys], pa.bool_())))
                start, kept = end, kept + table.num_rows
                run.progress(done + start, total)
            done += start
            account_for(part, start, kept)
            write_fates(run.write, part.pages, part.shard, list(_fates(part, ids, bundle.number)))
    shards = tuple(shard for _, cell in sorted(cells.items()) for shard in cell.writer.shards)
    counted = tuple((fate, licence, count) for (fate, licence), count in sorted(licences.items()))
    return Written(shards, tuple(samples), counted, emails, ips)


def account_for(part: Part, read: int, kept: int) -> None:
    """Give evidence that each document of a shard was kept or dropped for one reason.

    Raises:
        StepError: the shard did not hold the documents that its fates speak of, or the sum does not hold.
    """
    if read != part.shard.rows:
        raise StepError(
            f"document shard {part.shard.name} holds {read} rows, its record says {part.shard.rows}; "
            "redo the step that made the documents"
        )
    dropped = Counter(reason for reason in part.reasons if reason is not None)
    current_run().account(Flow(unit="documents", read=read, kept=kept, dropped=dict(sorted(dropped.items()))))


def _fates(part: Part, ids: Sequence[str], bundle: int) -> Iterator[dict[str, Any]]:
    for at, (document_id, reason) in enumerate(zip(ids, part.reasons, strict=True)):
        row: dict[str, Any] = {"id": document_id, "reason": reason, "why": part.whys[at], "split": part.splits[at]}
        yield (
            row
            if reason is not None
            else row
            | {
                "quality": part.buckets[at],
                "topic": part.topics[at],
                "bundle": bundle,
            }
        )


class _CellWriter:
    """Collects rows of one cell, so that row groups have their full size however few rows a batch brings."""

    def __init__(self, writer: DocumentWriter) -> None:
        self.writer = writer
        self._tables: list[pa.Table] = []
        self._bytes = 0

    def __enter__(self) -> _CellWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._flush()

    def add(self, table: pa.Table) -> None:
        """Add rows."""
        self._tables.append(table)
        self._bytes += table.nbytes
        if self._bytes >= _ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._tables:
            self.writer.write_table(pa.concat_tables(self._tables))
        self._tables, self._bytes = [], 0


def _samples(part: Part, start: int, batch: pa.RecordBatch) -> list[Sample]:
    found = []
    for row, (label, why) in part.samples.items():
        if start <= row < start + batch.num_rows:
            values = {name: batch.column(name)[row - start].as_py() for name in ("id", "url", "text")}
            # What a report shows is read by people: no address of anyone, whatever the policy, and nothing of a
            # document that was to be taken down.
            excerpt = "" if label == "takedown" else mask(values["text"][:_EXCERPT]).text
            found.append(Sample(values["id"], part.shard.source, values["url"] or "", label, why, excerpt))
    return found


def _finished(part: Part, start: int, batch: pa.RecordBatch, mask_addresses: bool) -> tuple[pa.Table, int, int]:
    """The documents of a batch that stay, with language set and text masked, and the numbers of addresses masked."""
    rows = range(start, start + batch.num_rows)
    stays = [part.reasons[at] is None for at in rows]
    table = pa.Table.from_batches([batch]).filter(pa.array(stays, pa.bool_()))
    languages = [part.languages[at] for at, stay in zip(rows, stays, strict=True) if stay]
    table = _with_column(table, "language", languages)
    if not mask_addresses:
        return table, 0, 0
    emails = ips = 0
    texts: list[str] = table.column("text").to_pylist()
    hashes: list[str] = table.column("text_hash").to_pylist()
    for at, text in enumerate(texts):
        masked = mask(text)
        if masked.emails or masked.ips:
            texts[at], hashes[at] = masked.text, text_hash(masked.text)
            emails, ips = emails + masked.emails, ips + masked.ips
    if emails or ips:
        table = _with_column(_with_column(table, "text", texts), "text_hash", hashes)
    return table, emails, ips


def _with_column(table: pa.Table, name: str, values: Sequence[str]) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(place), pa.array(values, pa.string()))
