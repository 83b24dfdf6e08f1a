"""Boilerplate lines: counted over all documents, then marked where they stand.

Lines are dealt out to parts by their hash, so that a part sees every document that has a line, however large the corpus
is. Counts are of distinct texts: copies of a page are one document.

Imports pyarrow and numpy; import this module inside step bodies only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash

from marin.data.dedup.config import DedupConfig
from marin.data.dedup.exchange import Hashes, deal_out, gather, parts_for, store_columns
from marin.data.dedup.line_candidates import Lines, cut_spans, read_lines
from marin.data.dedup.line_counts import Boilerplate, count_lines, count_sites
from marin.data.dedup.span_attributes import kept_rows, write_spans
from marin.data.dedup.spans_config import LineConfig
from marin.data.documents.addresses import canonical_url
from marin.data.documents.artifacts import Attributes, AttributeShard, Documents, DocumentShard
from marin.data.documents.attributes import attributes_of
from marin.data.documents.io import iterate_batches
from marin.execution import Flow, Intermediate, current_run

KIND = "lines"
_SHOWN = 50
"""Lines that the report shows."""
_SHOWN_CHARACTERS = 300


@dataclass(frozen=True)
class _Scan:
    """One document shard to read. Pickles."""

    pages: Documents
    shard: DocumentShard
    duplicates: Attributes | None
    config: LineConfig
    parts: int


@dataclass(frozen=True)
class _Scanned:
    """What one shard holds, by part: (line, site, text) and (site, text), as hashes; and how many lines are counted."""

    lines: tuple[Intermediate | None, ...]
    sites: tuple[Intermediate | None, ...]
    counted: int


@dataclass(frozen=True)
class _Count:
    """One part of all lines."""

    lines: tuple[Intermediate | None, ...]
    sites: tuple[Intermediate, ...]
    config: LineConfig


@dataclass(frozen=True)
class _Counted:
    """The boilerplate of one part.

    Attributes:
        found: its lines, see `Boilerplate`.
        distinct: different candidate lines.
        boilerplate: different lines that are boilerplate somewhere.
        top: (hash, documents) of those on most documents.
    """

    found: Intermediate
    distinct: int
    boilerplate: int
    top: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class _Mark:
    """One document shard to mark boilerplate in; of a protected one nothing is cut. Pickles."""

    pages: Documents
    shard: DocumentShard
    found: tuple[Intermediate, ...]
    shown: tuple[int, ...]
    config: LineConfig
    protected: bool


@dataclass(frozen=True)
class _Sample:
    """A boilerplate line as it stands in a document."""

    hash: int
    id: str
    text: str


@dataclass(frozen=True)
class _Marked:
    """What one shard came to."""

    attributes: AttributeShard
    documents: int
    lines: int
    cut_lines: int
    characters: int
    cut_characters: int
    samples: tuple[_Sample, ...]


def repeated_lines_of(
    pages: Sequence[Documents], duplicates: Attributes | None, config: LineConfig, dedup: DedupConfig
) -> Attributes:
    """Count the lines of all documents, then mark boilerplate; the body of the step."""
    run = current_run()
    shards = [(documents, shard) for documents in pages for shard in documents.shards]
    parts = parts_for(sum(shard.text_bytes for _, shard in shards), config.partition_bytes)
    scanned = run.map(_scan, [_Scan(documents, shard, duplicates, config, parts) for documents, shard in shards])
    sites = run.map(
        _count_sites, [_Count(tuple(one.sites[part] for one in scanned), (), config) for part in range(parts)]
    )
    counted = run.map(
        _count_lines,
        [_Count(tuple(one.lines[part] for one in scanned), tuple(sites), config) for part in range(parts)],
    )
    top = sorted((line for one in counted for line in one.top), key=lambda line: (-line[1], line[0]))[:_SHOWN]
    found, shown = tuple(one.found for one in counted), tuple(line for line, _ in top)
    marked = run.map(
        _mark,
        [_Mark(documents, shard, found, shown, config, shard.source in dedup.protected) for documents, shard in shards],
    )
    run.write_json(
        "report.json",
        {
            "counted_lines": sum(one.counted for one in scanned),
            "distinct_lines": sum(one.distinct for one in counted),
            "boilerplate_lines": sum(one.boilerplate for one in counted),
            **_totals(marked),
            "by_source": _by_source([shard for _, shard in shards], marked),
            "top": _top(top, marked),
        },
    )
    return attributes_of(KIND, [one.attributes for one in marked])


def _totals(marked: Sequence[_Marked]) -> dict[str, int]:
    return {
        "lines": sum(one.lines for one in marked),
        "cut_lines": sum(one.cut_lines for one in marked),
        "documents_cut": sum(one.documents for one in marked),
        "characters": sum(one.characters for one in marked),
        "cut_characters": sum(one.cut_characters for one in marked),
    }


def _by_source(shards: Sequence[DocumentShard], marked: Sequence[_Marked]) -> dict[str, dict[str, int]]:
    sources = sorted({shard.source for shard in shards})
    return {
        source: _totals([one for shard, one in zip(shards, marked, strict=True) if shard.source == source])
        for source in sources
    }


def _top(top: Sequence[tuple[int, int]], marked: Sequence[_Marked]) -> list[dict[str, Any]]:
    """The most frequent boilerplate, as the document with the least id has it."""
    samples: dict[int, _Sample] = {}
    for sample in (sample for one in marked for sample in one.samples):
        known = samples.get(sample.hash)
        if known is None or sample.id < known.id:
            samples[sample.hash] = sample
    return [
        {"documents": documents, "example": samples[line].id, "text": samples[line].text}
        for line, documents in top
        if line in samples
    ]


def _scan(task: _Scan) -> _Scanned:
    run = current_run()
    lines: list[Hashes] = []
    owners: list[tuple[int, int]] = []
    kept = kept_rows(task.duplicates, task.pages, task.shard)
    for row, (_, text, text_hash, url) in enumerate(_documents(task.pages, task.shard)):
        if kept is None or kept[row]:
            found = read_lines(text, task.config)
            lines.append(np.array(sorted(found.hashes()), np.uint64))
            owners.append((site_of(url, task.shard.source), _hash(text_hash)))
        run.progress(row + 1, task.shard.rows)
    of_documents = np.array(owners, np.uint64).reshape(-1, 2)
    per_line = np.repeat(of_documents, [len(one) for one in lines], axis=0)
    hashes = np.concatenate([np.zeros(0, np.uint64), *lines])
    return _Scanned(
        lines=deal_out("lines", hashes, task.parts, (hashes, per_line[:, 0], per_line[:, 1])),
        sites=deal_out("sites", of_documents[:, 0], task.parts, (of_documents[:, 0], of_documents[:, 1])),
        counted=len(hashes),
    )


def _count_sites(task: _Count) -> Intermediate:
    site, text = gather(task.lines, (np.uint64, np.uint64))
    return store_columns("sites.npy", *count_sites(site, text, task.config.least_documents))


def _count_lines(task: _Count) -> _Counted:
    sites, documents = gather(task.sites, (np.uint64, np.int64))
    order = np.argsort(sites)
    line, site, text = gather(task.lines, (np.uint64, np.uint64, np.uint64))
    found, distinct = count_lines(line, site, text, (sites[order], documents[order]), task.config)
    return _Counted(store_columns("boilerplate.npy", *found.columns()), distinct, found.lines, found.top(_SHOWN))


def _mark(task: _Mark) -> _Marked:
    run = current_run()
    boilerplate = Boilerplate.from_columns(gather(task.found, Boilerplate.KINDS))
    spans: list[list[tuple[int, int]]] = []
    ids: list[str] = []
    samples: dict[int, _Sample] = {}
    shown = frozenset(task.shown)
    lines = cut_lines = characters = 0
    for document_id, text, text_hash, url in _documents(task.pages, task.shard):
        found = read_lines(text, task.config)
        cut, keys = _cut(found, boilerplate, site_of(url, task.shard.source), _hash(text_hash), task.config.keep_first)
        if task.protected:
            cut = [False] * len(cut)
        lines += found.blank.count(False)
        cut_lines += sum(cut)
        characters += len(text)
        spans.append(cut_spans(found, cut) if any(cut) else [])
        ids.append(document_id)
        for key, first, after in keys:
            if key in shown and (key not in samples or document_id < samples[key].id):
                start, end = found.starts[first], found.starts[after] - 1
                samples[key] = _Sample(key, document_id, text[start:end][:_SHOWN_CHARACTERS])
        run.progress(len(ids), task.shard.rows)
    run.account(Flow(unit="documents", read=len(ids), kept=len(ids)))
    return _Marked(
        attributes=write_spans(task.pages, task.shard, KIND, ids, spans),
        documents=sum(map(bool, spans)),
        lines=lines,
        cut_lines=cut_lines,
        characters=characters,
        cut_characters=sum(end - start for of_document in spans for start, end in of_document),
        samples=tuple(samples[key] for key in sorted(samples)),
    )


def _cut(
    lines: Lines, boilerplate: Boilerplate, site: int, text: int, keep_first: bool
) -> tuple[list[bool], list[tuple[int, int, int]]]:
    """Which lines go, and (hash, first line, line after the last) of the boilerplate that they are."""
    places = [(key, at, at + 1) for at, key in enumerate(lines.keys) if key is not None]
    places += [(key, first, after) for first, after, key in lines.paragraphs]
    keys = np.array([key for key, _, _ in places], np.uint64)
    goes, stays = boilerplate.judge(keys, site, text)
    boiler = [(*place, kept) for place, gone, kept in zip(places, goes.tolist(), stays.tolist(), strict=True) if gone]
    may_go = lines.may_go([(first, after) for _, first, after, _ in boiler])
    cut = [False] * len(lines.blank)
    found: list[tuple[int, int, int]] = []
    seen: set[int] = set()
    for key, first, after, kept in (one for one, may in zip(boiler, may_go, strict=True) if may):
        found.append((key, first, after))
        if keep_first and kept and key not in seen:
            seen.add(key)
        else:
            cut[first:after] = [True] * (after - first)
    return cut, found


def site_of(url: str | None, source: str) -> int:
    """Hash of the site of a document: its host, or its source where it has no address."""
    host = canonical_url(url).partition("/")[0] if url and "://" in url else ""
    return _hash(f"host {host}" if host else f"source {source}")


def _hash(text: str) -> int:
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "replace"))


def _documents(pages: Documents, shard: DocumentShard) -> Iterator[tuple[str, str, str, str | None]]:
    for batch in iterate_batches(pages, shard, columns=("id", "text", "text_hash", "url"), batch_rows=256):
        columns: dict[str, list[Any]] = batch.to_pydict()
        yield from zip(columns["id"], columns["text"], columns["text_hash"], columns["url"], strict=True)
