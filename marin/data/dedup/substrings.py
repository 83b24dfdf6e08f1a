"""Long repeated spans across documents: found by hash, confirmed word by word, marked where they are not first.

An n-gram can only be repeated where its anchor is, and anchors are few. So shards send their anchors to parts by hash;
of the n-grams only those around repeated anchors are sent in turn. A part answers with the preferred place of each, the
shard makes spans of them, and the shard that holds the preferred place confirms every span by its words.

Imports pyarrow and numpy; import this module inside step bodies only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from marin.data.dedup.config import DedupConfig
from marin.data.dedup.exchange import load_columns, parts_for
from marin.data.dedup.span_attributes import write_spans
from marin.data.dedup.span_claims import Claimed, ClaimTask, Confirmed, ConfirmTask, claim_spans, confirm_spans
from marin.data.dedup.span_grams import (
    Collected,
    CollectTask,
    PlaceTask,
    Scanned,
    ScanTask,
    collect_grams,
    place_grams,
    repeated_anchors,
    scan_anchors,
)
from marin.data.dedup.spans_config import SpanConfig
from marin.data.documents.artifacts import Attributes, AttributeShard, Documents, DocumentShard
from marin.data.documents.attributes import attributes_of
from marin.data.documents.io import iterate_batches
from marin.execution import Flow, Intermediate, StepError, current_run

KIND = "spans"
_SHOWN = 50
"""Spans that the report shows."""


@dataclass(frozen=True)
class _Write:
    """One shard to write."""

    pages: Documents
    shard: DocumentShard
    spans: Intermediate
    answers: tuple[Intermediate, ...]


@dataclass(frozen=True)
class _Written:
    """What one shard came to."""

    attributes: AttributeShard
    documents: int
    spans: int
    unconfirmed: int
    characters: int
    cut_characters: int


def repeated_spans_of(
    pages: Sequence[Documents],
    duplicates: Attributes,
    signals: Sequence[Attributes],
    config: SpanConfig,
    dedup: DedupConfig,
) -> Attributes:
    """Find the spans, confirm them, and write them beside the documents; the body of the step."""
    if signals and len(signals) != len(pages):
        raise StepError(
            f"repeated_spans got {len(pages)} documents and {len(signals)} signals; give the signals of each, in "
            "order, or none"
        )
    run = current_run()
    size = config.least_words
    judged: Sequence[Attributes | None] = signals or [None] * len(pages)
    shards = [(documents, shard) for documents in pages for shard in documents.shards]
    parts = parts_for(sum(shard.text_bytes for _, shard in shards), config.partition_bytes)
    scanned = run.map(
        scan_anchors,
        [
            ScanTask(documents, shard, duplicates, of_pages, size, parts)
            for documents, of_pages in zip(pages, judged, strict=True)
            for shard in documents.shards
        ],
    )
    repeated = run.map(repeated_anchors, [tuple(one.distinct[part] for one in scanned) for part in range(parts)])
    collected = run.map(
        collect_grams,
        [
            CollectTask(documents, shard, one.anchors, tuple(of_part[at] for of_part in repeated), size, parts)
            for at, ((documents, shard), one) in enumerate(zip(shards, scanned, strict=True))
        ],
    )
    ids = tuple(one.ids for one in collected)
    ranks = tuple(dedup.rank(shard.source) for _, shard in shards)
    placed = run.map(
        place_grams, [PlaceTask(tuple(one.grams[part] for one in collected), ids, ranks, size) for part in range(parts)]
    )
    claimed = run.map(
        claim_spans,
        [
            ClaimTask(documents, shard, one.grams, tuple(of_part[at] for of_part in placed), size)
            for at, ((documents, shard), one) in enumerate(zip(shards, collected, strict=True))
        ],
    )
    confirmed = _confirm(shards, claimed)
    written = run.map(
        _write,
        [
            _Write(
                documents, shard, one.spans, tuple(answer.answers[at] for answer in confirmed if at in answer.answers)
            )
            for at, ((documents, shard), one) in enumerate(zip(shards, claimed, strict=True))
        ],
    )
    _report(shards, scanned, collected, confirmed, written)
    return attributes_of(KIND, [one.attributes for one in written])


def _confirm(shards: Sequence[tuple[Documents, DocumentShard]], claimed: Sequence[Claimed]) -> list[Confirmed]:
    """Ask the shards that hold preferred places."""
    tasks = []
    for at, (documents, shard) in enumerate(shards):
        claims = {asking: one.claims[at] for asking, one in enumerate(claimed) if at in one.claims}
        if claims:
            tasks.append(ConfirmTask(documents, shard, claims, _SHOWN))
    return current_run().map(confirm_spans, tasks)


def _write(task: _Write) -> _Written:
    number, row, start, end = load_columns(task.spans)
    answers = [load_columns(file) for file in task.answers]
    confirmed = np.zeros(len(number), np.bool_)
    original = np.zeros(len(number), object)
    for numbers, good, ids, starts, ends in answers:
        confirmed[numbers] = good
        original[numbers] = [
            f"{name.decode()}:{first}-{after}"
            for name, first, after in zip(ids.tolist(), starts.tolist(), ends.tolist(), strict=True)
        ]
    ids_of_shard = [
        document_id
        for batch in iterate_batches(task.pages, task.shard, columns=("id",))
        for document_id in batch.column("id").to_pylist()
    ]
    spans: list[list[tuple[int, int]]] = [[] for _ in ids_of_shard]
    places: list[list[str]] = [[] for _ in ids_of_shard]
    for at in np.flatnonzero(confirmed).tolist():
        spans[row[at]].append((int(start[at]), int(end[at])))
        places[row[at]].append(original[at])
    more = {"originals": pa.array(places, pa.list_(pa.string()))}
    characters = sum(_characters(task.pages, task.shard))
    current_run().account(Flow(unit="documents", read=len(ids_of_shard), kept=len(ids_of_shard)))
    return _Written(
        attributes=write_spans(task.pages, task.shard, KIND, ids_of_shard, spans, more),
        documents=sum(map(bool, spans)),
        spans=int(confirmed.sum()),
        unconfirmed=int((~confirmed).sum()),
        characters=characters,
        cut_characters=sum(after - first for of_document in spans for first, after in of_document),
    )


def _characters(pages: Documents, shard: DocumentShard) -> Iterator[int]:
    for batch in iterate_batches(pages, shard, columns=("text",)):
        yield int(pc.sum(pc.utf8_length(batch.column("text"))).as_py() or 0)


def _report(
    shards: Sequence[tuple[Documents, DocumentShard]],
    scanned: Sequence[Scanned],
    collected: Sequence[Collected],
    confirmed: Sequence[Confirmed],
    written: Sequence[_Written],
) -> None:
    sources = sorted({shard.source for _, shard in shards})
    top = sorted((one for answer in confirmed for one in answer.top), key=lambda one: (-one.words, one.id, one.start))
    of_source = {
        source: _totals([one for (_, shard), one in zip(shards, written, strict=True) if shard.source == source])
        for source in sources
    }
    current_run().write_json(
        "report.json",
        {
            "documents_compared": sum(one.documents for one in scanned),
            "words_compared": sum(one.words for one in scanned),
            "n_grams_compared": sum(one.count for one in collected),
            **_totals(written),
            "unconfirmed_spans": sum(one.unconfirmed for one in written),
            "by_source": of_source,
            "top": [
                {
                    "original": f"{one.id}:{one.start}-{one.end}",
                    "repeats": one.repeats,
                    "words": one.words,
                    "text": one.text,
                }
                for one in top[:_SHOWN]
            ],
        },
    )


def _totals(written: Sequence[_Written]) -> dict[str, Any]:
    return {
        "documents_cut": sum(one.documents for one in written),
        "spans": sum(one.spans for one in written),
        "characters": sum(one.characters for one in written),
        "cut_characters": sum(one.cut_characters for one in written),
    }
