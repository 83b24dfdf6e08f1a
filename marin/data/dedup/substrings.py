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
from numpy.typing import NDArray

from marin.data.dedup.exchange import Hashes, deal_out, load_columns, parts_for, store_columns
from marin.data.dedup.span_attributes import kept_rows, write_spans
from marin.data.dedup.span_claims import (
    Claimed,
    ClaimTask,
    Confirmed,
    ConfirmTask,
    claim_spans,
    confirm_spans,
    texts_of,
)
from marin.data.dedup.span_matches import Grams, originals, repeated_hashes
from marin.data.dedup.span_words import anchors_of, window_hashes
from marin.data.dedup.spans_config import SpanConfig
from marin.data.documents.artifacts import Attributes, AttributeShard, Documents, DocumentShard
from marin.data.documents.attributes import attributes_of
from marin.data.documents.io import iterate_batches
from marin.data.filtering.words import WordTable, plain_hashes_of
from marin.execution import Flow, Intermediate, StepError, current_run

KIND = "spans"
_SHOWN = 50
"""Spans that the report shows."""

_Files = tuple[Intermediate | None, ...]


@dataclass(frozen=True)
class _Scan:
    """One document shard to read. Pickles."""

    pages: Documents
    shard: DocumentShard
    duplicates: Attributes
    signals: Attributes | None
    size: int
    parts: int


@dataclass(frozen=True)
class _Scanned:
    """The anchors of one shard: (row, hash) of all, and the different ones with their count by part."""

    anchors: Intermediate
    distinct: _Files
    documents: int
    words: int


@dataclass(frozen=True)
class _Collect:
    """One shard whose n-grams around repeated anchors are to be sent."""

    pages: Documents
    shard: DocumentShard
    anchors: Intermediate
    repeated: _Files
    size: int
    parts: int


@dataclass(frozen=True)
class _Collected:
    """N-grams of one shard by part, as (hash, row, place), and the ids of the documents that have them."""

    grams: _Files
    ids: Intermediate
    count: int


@dataclass(frozen=True)
class _Place:
    """One part of the n-grams.

    Attributes:
        grams: those of each shard.
        ids: the documents of each shard.
        ranks: preference of each shard's source; a negative one is never cut.
        size: words of an n-gram.
    """

    grams: _Files
    ids: tuple[Intermediate, ...]
    ranks: tuple[int, ...]
    size: int


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
    pages: Sequence[Documents], duplicates: Attributes, signals: Sequence[Attributes], config: SpanConfig
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
        _scan,
        [
            _Scan(documents, shard, duplicates, of_pages, size, parts)
            for documents, of_pages in zip(pages, judged, strict=True)
            for shard in documents.shards
        ],
    )
    repeated = run.map(_repeated_anchors, [tuple(one.distinct[part] for one in scanned) for part in range(parts)])
    collected = run.map(
        _collect,
        [
            _Collect(documents, shard, one.anchors, tuple(of_part[at] for of_part in repeated), size, parts)
            for at, ((documents, shard), one) in enumerate(zip(shards, scanned, strict=True))
        ],
    )
    ids = tuple(one.ids for one in collected)
    ranks = tuple(_rank(shard.source, config) for _, shard in shards)
    placed = run.map(
        _place, [_Place(tuple(one.grams[part] for one in collected), ids, ranks, size) for part in range(parts)]
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


def _rank(source: str, config: SpanConfig) -> int:
    """The lesser the preferred; negative for protected sources."""
    if source in config.protected:
        return -1
    return config.priority.index(source) if source in config.priority else len(config.priority)


def _scan(task: _Scan) -> _Scanned:
    """The anchors of the documents that take part."""
    run = current_run()
    table = WordTable()
    takes_part = _takes_part(task)
    rows: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    hashes: list[Hashes] = [np.zeros(0, np.uint64)]
    words = row = 0
    for batch in iterate_batches(task.pages, task.shard, columns=("text",), batch_rows=256):
        for text in batch.column("text"):
            if takes_part[row]:
                of_text = plain_hashes_of(text.as_py(), table)
                words += len(of_text)
                found = anchors_of(of_text, task.size).hashes
                hashes.append(found)
                rows.append(np.full(len(found), row))
            row += 1
        run.progress(row, task.shard.rows)
    every = np.concatenate(hashes)
    distinct, counts = np.unique(every, return_counts=True)
    return _Scanned(
        anchors=store_columns("anchors.npy", np.concatenate(rows), every),
        distinct=deal_out("distinct", distinct, task.parts, (distinct, np.minimum(counts, 2).astype(np.int64))),
        documents=int(takes_part.sum()),
        words=words,
    )


def _takes_part(task: _Scan) -> NDArray[np.bool_]:
    chosen = [kept_rows(one, task.pages, task.shard) for one in (task.duplicates, task.signals)]
    found: NDArray[np.bool_] = np.logical_and.reduce([rows for rows in chosen if rows is not None])
    return found


def _repeated_anchors(files: _Files) -> list[Intermediate | None]:
    """For each shard its anchors of one part that recur."""
    there = [load_columns(file) for file in files if file is not None]
    answers = iter(repeated_hashes([columns[0] for columns in there], [columns[1] for columns in there]))
    found: list[Intermediate | None] = []
    for at, file in enumerate(files):
        again = next(answers) if file is not None else np.zeros(0, np.uint64)
        found.append(store_columns(f"repeated-{at:05d}.npy", again) if len(again) else None)
    return found


def _collect(task: _Collect) -> _Collected:
    """The n-grams around repeated anchors. Only the documents that have some are read again."""
    rows, hashes = load_columns(task.anchors)
    again = np.sort(np.concatenate([np.zeros(0, np.uint64), *(load_columns(one)[0] for one in task.repeated if one)]))
    marked = np.isin(hashes, again)
    begins = np.searchsorted(rows, np.arange(task.shard.rows + 1))
    table = WordTable()
    found: list[Hashes] = [np.zeros(0, np.uint64)]
    found_rows: list[NDArray[np.int32]] = [np.zeros(0, np.int32)]
    found_places: list[NDArray[np.int32]] = [np.zeros(0, np.int32)]
    ids: dict[int, bytes] = {}
    wanted = set(np.unique(rows[marked]).tolist())
    for row, document_id, text in texts_of(task.pages, task.shard, wanted):
        words = plain_hashes_of(text, table)
        anchors = anchors_of(words, task.size)
        places = np.flatnonzero(marked[begins[row] : begins[row + 1]][anchors.of_windows])
        found.append(window_hashes(words, task.size)[places])
        found_rows.append(np.full(len(places), row, np.int32))
        found_places.append(places.astype(np.int32))
        ids[row] = document_id.encode("utf-8", "replace")
        current_run().progress(len(ids), len(wanted))
    every = np.concatenate(found)
    columns = (every, np.concatenate(found_rows), np.concatenate(found_places))
    return _Collected(
        grams=deal_out("grams", every, task.parts, columns),
        ids=store_columns("ids.npy", np.array(sorted(ids), np.int64), np.array([ids[row] for row in sorted(ids)], "S")),
        count=len(every),
    )


def _place(task: _Place) -> list[Intermediate | None]:
    """For each shard the preferred places of its n-grams of one part, in the order in which they were sent."""
    there = [at for at, file in enumerate(task.grams) if file is not None]
    loaded = [load_columns(file) for file in task.grams if file is not None]
    if not there:
        return [None] * len(task.grams)
    hashes, rows, places = (np.concatenate([columns[n] for columns in loaded]) for n in range(3))
    sizes = [len(columns[0]) for columns in loaded]
    shard = np.repeat(np.array(there, np.int32), sizes)
    first = originals(Grams(hashes, _order(task, shard, rows), places.astype(np.int64)), task.size)
    first[np.array(task.ranks)[shard] < 0] = -1
    answers: list[Intermediate | None] = [None] * len(task.grams)
    for at, of_shard in zip(there, np.split(first, np.cumsum(sizes)[:-1]), strict=True):
        if (of_shard >= 0).any():
            found = [np.where(of_shard < 0, -1, column[of_shard]) for column in (shard, rows, places)]
            answers[at] = store_columns(f"places-{at:05d}.npy", *found)
    return answers


def _order(task: _Place, shard: NDArray[np.int32], rows: NDArray[np.int32]) -> NDArray[np.int64]:
    """Number of each row's document in the order of preference: by source, then by id."""
    keys = (shard.astype(np.int64) << 32) | rows
    documents, at = np.unique(keys, return_inverse=True)
    ids: list[NDArray[np.bytes_]] = []
    for number in np.unique(documents >> 32).tolist():
        known, names = load_columns(task.ids[number])
        ids.append(names[np.searchsorted(known, documents[documents >> 32 == number] & 0xFFFFFFFF)])
    sort = np.lexsort((np.concatenate(ids), np.array(task.ranks)[documents >> 32]))
    order = np.empty(len(documents), np.int64)
    order[sort] = np.arange(len(documents))
    return order[at]


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
    import pyarrow.compute as pc

    for batch in iterate_batches(pages, shard, columns=("text",)):
        yield int(pc.sum(pc.utf8_length(batch.column("text"))).as_py() or 0)


def _report(
    shards: Sequence[tuple[Documents, DocumentShard]],
    scanned: Sequence[_Scanned],
    collected: Sequence[_Collected],
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
