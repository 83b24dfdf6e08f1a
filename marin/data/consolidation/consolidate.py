"""Joining documents with their attributes and writing the ones that stay.

Imports pyarrow; import this module inside step bodies only.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from urllib.parse import quote

import pyarrow as pa

from marin.data.consolidation.config import Policy
from marin.data.consolidation.decide import Facts, Fates, decide
from marin.data.consolidation.quality import SCORE_COLUMNS
from marin.data.consolidation.report import Cell, Sample, Summary, data_card, report_page
from marin.data.documents.artifacts import Attributes, Documents, DocumentShard
from marin.data.documents.attributes import read_attributes
from marin.data.documents.io import DocumentWriter, documents_of, iterate_batches
from marin.data.documents.schema import text_hash
from marin.data.documents.split import split_of
from marin.data.evalsets.artifacts import EvalSet
from marin.data.filtering.pii import mask
from marin.execution import Flow, StepError, current_run

_BUNDLE_BYTES = 128 * 1024**2
_ROW_GROUP_BYTES = 32 * 1024**2
_EXCERPT = 600
_JUDGED_COLUMNS = ("id", "reason", "reasons", "language")


@dataclass(frozen=True)
class _Part:
    """One document shard with the fate of its documents: split and bucket of those that stay, which to show."""

    pages: Documents
    shard: DocumentShard
    splits: tuple[str, ...]
    buckets: tuple[int, ...]
    languages: tuple[str, ...]
    samples: dict[int, str]


@dataclass(frozen=True)
class _Bundle:
    """Shards of one source that are written together, so that small ones do not give small files. Pickles."""

    number: int
    source: str
    parts: tuple[_Part, ...]
    mask_addresses: bool


@dataclass(frozen=True)
class _Written:
    """What one bundle came back with."""

    shards: tuple[DocumentShard, ...]
    samples: tuple[Sample, ...]
    emails: int
    ips: int


def consolidate_documents(
    pages: Sequence[Documents],
    signals: Sequence[Attributes],
    duplicates: Attributes,
    contamination: Attributes,
    evalset: EvalSet,
    policy: Policy,
) -> Documents:
    """Decide for all documents, then write those that stay; the body of the step."""
    if len(pages) != len(signals):
        raise StepError(
            f"consolidate got {len(pages)} documents and {len(signals)} signals; give the signals of each, in order"
        )
    run = current_run()
    facts = Facts()
    for documents, attributes in zip(pages, signals, strict=True):
        for shard in documents.shards:
            _collect(facts, documents, shard, attributes, duplicates, contamination, policy)
    fates = decide(facts, policy)
    dropped = fates.dropped()
    kept = len(facts.ids) - sum(dropped.values())
    run.account(Flow(unit="documents", read=len(facts.ids), kept=kept, dropped=dropped))
    if not kept:
        raise StepError(_nothing_left(len(facts.ids), dropped))
    parts = _parts(pages, facts, fates, evalset.validation_share, policy)
    written = run.map(_write_bundle, _bundles(parts, policy))
    result = documents_of(
        pages[0].source if len(pages) == 1 else None,
        sorted(
            (shard for bundle in written for shard in bundle.shards),
            key=lambda shard: (shard.split, shard.source, shard.quality, shard.name),
        ),
    )
    summary = _summary(facts, fates, result, written, evalset.validation_share, policy)
    run.write_json("counts.json", summary.counts())
    run.write_bytes("report.html", report_page(summary).encode())
    run.write_bytes("README.md", data_card(summary).encode())
    return result


def _nothing_left(read: int, dropped: dict[str, int]) -> str:
    if not read:
        return "consolidate got no documents; look at what the crawl and the extraction dropped"
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(dropped.items(), key=lambda item: -item[1]))
    return f"no document is left of {read}: {reasons}; loosen the rules of the signals or of the policy"


def _collect(
    facts: Facts,
    documents: Documents,
    shard: DocumentShard,
    signals: Attributes,
    duplicates: Attributes,
    contamination: Attributes,
    policy: Policy,
) -> None:
    judged_again = policy.rules is not None or policy.language is not None
    columns = None if judged_again else (*_JUDGED_COLUMNS, *SCORE_COLUMNS)
    rows = read_attributes(signals, documents, shard, columns=columns)
    if judged_again:
        rows = rows.drop_columns(["bands", "content"])
    copies = read_attributes(duplicates, documents, shard, columns=("reason", "duplicate_of"))
    overlaps = read_attributes(contamination, documents, shard, columns=("reason",))
    facts.ids.extend(rows.column("id").to_pylist())
    facts.sources.extend([shard.source] * shard.rows)
    facts.signals.extend(rows.to_pylist())
    facts.duplicate_reasons.extend(copies.column("reason").to_pylist())
    facts.duplicate_of.extend(copies.column("duplicate_of").to_pylist())
    facts.contaminated.extend(reason is not None for reason in overlaps.column("reason").to_pylist())


def _parts(
    pages: Sequence[Documents], facts: Facts, fates: Fates, validation_share: float, policy: Policy
) -> list[_Part]:
    samples = _choose_samples(facts.ids, fates, policy.samples)
    parts: list[_Part] = []
    start = 0
    for documents in pages:
        for shard in documents.shards:
            rows = range(start, start + shard.rows)
            parts.append(
                _Part(
                    pages=documents,
                    shard=shard,
                    splits=tuple(split_of(facts.ids[at], validation_share) for at in rows),
                    buckets=tuple(fates.buckets[at] for at in rows),
                    languages=tuple(facts.signals[at]["language"] for at in rows),
                    samples={at - start: samples[at] for at in rows if at in samples},
                )
            )
            start += shard.rows
    return parts


def _choose_samples(ids: Sequence[str], fates: Fates, count: int) -> dict[int, str]:
    """Position and label of the documents that the report shows: those with the least hash of their id."""
    by_label: dict[str, list[tuple[bytes, int]]] = defaultdict(list)
    for at, reason in enumerate(fates.reasons):
        by_label[reason or "kept"].append((hashlib.blake2b(ids[at].encode(), digest_size=8).digest(), at))
    return {
        at: label
        for label, members in by_label.items()
        for _, at in sorted(members)[: 4 * count if label == "kept" else count]
    }


def _bundles(parts: Sequence[_Part], policy: Policy) -> list[_Bundle]:
    by_source: dict[str, list[_Part]] = defaultdict(list)
    for part in parts:
        by_source[part.shard.source].append(part)
    bundles: list[_Bundle] = []
    for source in sorted(by_source):
        chosen: list[_Part] = []
        for at, part in enumerate(by_source[source]):
            chosen.append(part)
            last = at == len(by_source[source]) - 1
            if last or sum(one.shard.text_bytes for one in chosen) >= _BUNDLE_BYTES:
                bundles.append(_Bundle(len(bundles), source, tuple(chosen), policy.mask_addresses))
                chosen = []
    return bundles


def _write_bundle(bundle: _Bundle) -> _Written:
    """Write the documents that stay, one file for each split and quality bucket, in one pass over the shards."""
    run = current_run()
    samples: list[Sample] = []
    rows = emails = ips = 0
    with ExitStack() as stack:
        cells: dict[tuple[str, int], _CellWriter] = {}
        for part in bundle.parts:
            start = 0
            for batch in iterate_batches(part.pages, part.shard):
                samples.extend(_samples(part, start, batch))
                table, found_emails, found_ips = _finished(part, start, batch, bundle.mask_addresses)
                emails, ips = emails + found_emails, ips + found_ips
                end = start + batch.num_rows
                fates = zip(part.splits[start:end], part.buckets[start:end], strict=True)
                keys = [(split, bucket) for split, bucket in fates if bucket >= 0]
                for split, bucket in sorted(set(keys)):
                    if (split, bucket) not in cells:
                        stem = f"{split}/{quote(bundle.source, safe='')}/q{bucket}/{bundle.number:05d}"
                        writer = DocumentWriter(
                            run.write, stem, source=bundle.source, split=split, quality=bucket, consolidated=True
                        )
                        cells[split, bucket] = stack.enter_context(_CellWriter(stack.enter_context(writer)))
                    chosen = pa.array([key == (split, bucket) for key in keys], pa.bool_())
                    cells[split, bucket].add(table.filter(chosen))
                start = end
                rows += batch.num_rows
                run.progress(rows, sum(one.shard.rows for one in bundle.parts))
    shards = tuple(shard for _, cell in sorted(cells.items()) for shard in cell.writer.shards)
    return _Written(shards, tuple(samples), emails, ips)


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


def _samples(part: _Part, start: int, batch: pa.RecordBatch) -> list[Sample]:
    found = []
    for row, label in part.samples.items():
        if start <= row < start + batch.num_rows:
            values = {name: batch.column(name)[row - start].as_py() for name in ("id", "url", "text")}
            # What a report shows is read by people: no address of anyone, whatever the policy.
            excerpt = mask(values["text"][:_EXCERPT]).text
            found.append(Sample(values["id"], part.shard.source, values["url"] or "", label, excerpt))
    return found


def _finished(part: _Part, start: int, batch: pa.RecordBatch, mask_addresses: bool) -> tuple[pa.Table, int, int]:
    """The documents of a batch that stay, with language set and text masked, and the numbers of addresses masked."""
    rows = range(start, start + batch.num_rows)
    stays = [part.buckets[at] >= 0 for at in rows]
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


def _summary(
    facts: Facts, fates: Fates, result: Documents, written: Sequence[_Written], validation_share: float, policy: Policy
) -> Summary:
    by_source: dict[str, Counter[str]] = defaultdict(Counter)
    by_language: dict[str, Counter[str]] = defaultdict(Counter)
    lengths: dict[str, Counter[int]] = {"kept": Counter(), "dropped": Counter()}
    for source, row, reason in zip(facts.sources, facts.signals, fates.reasons, strict=True):
        fate = "dropped" if reason else "kept"
        by_source[source][fate] += 1
        by_language[row["language"]][fate] += 1
        lengths[fate][int(row["characters"]).bit_length()] += 1
    cells: dict[tuple[str, str, int], list[int]] = defaultdict(lambda: [0, 0])
    for shard in result.shards:
        cell = cells[shard.split, shard.source, shard.quality]
        cell[0] += shard.rows
        cell[1] += shard.text_bytes
    return Summary(
        title=policy.title,
        read=len(facts.ids),
        kept=result.rows,
        text_bytes=result.text_bytes,
        dropped=fates.dropped(),
        by_source={name: dict(counts) for name, counts in sorted(by_source.items())},
        by_language={name: dict(counts) for name, counts in sorted(by_language.items())},
        lengths={fate: dict(sorted(counts.items())) for fate, counts in lengths.items()},
        cells=tuple(Cell(*key, *sizes) for key, sizes in sorted(cells.items())),
        samples=tuple(
            sorted((one for bundle in written for one in bundle.samples), key=lambda one: (one.label, one.id))
        ),
        emails=sum(bundle.emails for bundle in written),
        ips=sum(bundle.ips for bundle in written),
        validation_share=validation_share,
        policy=repr(policy),
    )
