"""The n-grams of documents that stand in two places: found by their anchors, then placed by their hashes.

Imports pyarrow and numpy; import this module inside step bodies only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marin.data.dedup.exchange import Hashes, deal_out, load_columns, store_columns
from marin.data.dedup.span_attributes import kept_rows
from marin.data.dedup.span_claims import texts_of
from marin.data.dedup.span_matches import Grams, originals, repeated_hashes
from marin.data.dedup.span_words import anchors_of, window_hashes
from marin.data.documents.artifacts import Attributes, Documents, DocumentShard
from marin.data.documents.io import iterate_batches
from marin.data.filtering.words import WordTable, plain_hashes_of
from marin.execution import Intermediate, current_run

Files = tuple[Intermediate | None, ...]

_BLOCKS = 16
"""Blocks of a part that are sorted one after the other."""


@dataclass(frozen=True)
class ScanTask:
    """One document shard to read. Pickles."""

    pages: Documents
    shard: DocumentShard
    duplicates: Attributes
    signals: Attributes | None
    size: int
    parts: int


@dataclass(frozen=True)
class Scanned:
    """The anchors of one shard: (row, hash) of all, and the different ones with their count by part."""

    anchors: Intermediate
    distinct: Files
    documents: int
    words: int


@dataclass(frozen=True)
class CollectTask:
    """One shard whose n-grams around repeated anchors are to be sent."""

    pages: Documents
    shard: DocumentShard
    anchors: Intermediate
    repeated: Files
    size: int
    parts: int


@dataclass(frozen=True)
class Collected:
    """N-grams of one shard by part, as (hash, row, place), and the ids of the documents that have them."""

    grams: Files
    ids: Intermediate
    count: int


@dataclass(frozen=True)
class PlaceTask:
    """One part of the n-grams.

    Attributes:
        grams: those of each shard.
        ids: the documents of each shard.
        ranks: preference of each shard's source; a negative one is never cut.
        size: words of an n-gram.
    """

    grams: Files
    ids: tuple[Intermediate, ...]
    ranks: tuple[int, ...]
    size: int


def scan_anchors(task: ScanTask) -> Scanned:
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
    return Scanned(
        anchors=store_columns("anchors.npy", np.concatenate(rows), every),
        distinct=deal_out("distinct", distinct, task.parts, (distinct, np.minimum(counts, 2).astype(np.int64))),
        documents=int(takes_part.sum()),
        words=words,
    )


def _takes_part(task: ScanTask) -> NDArray[np.bool_]:
    chosen = [kept_rows(one, task.pages, task.shard) for one in (task.duplicates, task.signals)]
    found: NDArray[np.bool_] = np.logical_and.reduce([rows for rows in chosen if rows is not None])
    return found


def repeated_anchors(files: Files) -> list[Intermediate | None]:
    """For each shard its anchors of one part that recur."""
    there = [load_columns(file) for file in files if file is not None]
    answers = iter(repeated_hashes([columns[0] for columns in there], [columns[1] for columns in there]))
    found: list[Intermediate | None] = []
    for at, file in enumerate(files):
        again = next(answers) if file is not None else np.zeros(0, np.uint64)
        found.append(store_columns(f"repeated-{at:05d}.npy", again) if len(again) else None)
    return found


def collect_grams(task: CollectTask) -> Collected:
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
    return Collected(
        grams=deal_out("grams", every, task.parts, columns),
        ids=store_columns("ids.npy", np.array(sorted(ids), np.int64), np.array([ids[row] for row in sorted(ids)], "S")),
        count=len(every),
    )


def place_grams(task: PlaceTask) -> list[Intermediate | None]:
    """For each shard the preferred places of its n-grams of one part, in the order in which they were sent."""
    there = [at for at, file in enumerate(task.grams) if file is not None]
    if not there:
        return [None] * len(task.grams)
    columns: list[tuple[NDArray[Any], ...]] = [tuple(load_columns(file)) for file in task.grams if file is not None]
    sizes = [len(of_shard[0]) for of_shard in columns]
    order = np.concatenate(_order(task, there, [rows for _, rows, _ in columns]))
    hashes, rows, places = (np.concatenate(of_all) for of_all in zip(*columns, strict=True))
    del columns
    first = np.empty(len(hashes), np.int64)
    for block in range(_BLOCKS):
        # Block by block, since sorting takes several times the room of what is sorted.
        chosen = np.flatnonzero(hashes % np.uint64(_BLOCKS) == block)
        found = originals(Grams(hashes[chosen], order[chosen], places[chosen].astype(np.int64)), task.size)
        first[chosen] = np.where(found < 0, -1, chosen[found])
    shard = np.repeat(np.array(there, np.int32), sizes)
    first[np.array(task.ranks)[shard] < 0] = -1
    answers: list[Intermediate | None] = [None] * len(task.grams)
    for at, of_shard in zip(there, np.split(first, np.cumsum(sizes)[:-1]), strict=True):
        if (of_shard >= 0).any():
            answer = [np.where(of_shard < 0, -1, column[of_shard]) for column in (shard, rows, places)]
            answers[at] = store_columns(f"places-{at:05d}.npy", *answer)
    return answers


def _order(task: PlaceTask, shards: list[int], rows: list[NDArray[np.int32]]) -> list[NDArray[np.int32]]:
    """For each shard the numbers of its rows' documents in the order of preference: by source, then by id."""
    documents = [np.unique(of_shard) for of_shard in rows]
    ids = []
    for shard, chosen in zip(shards, documents, strict=True):
        known, names = load_columns(task.ids[shard])
        ids.append(names[np.searchsorted(known, chosen)])
    sizes = [len(chosen) for chosen in documents]
    ranks = np.repeat([task.ranks[shard] for shard in shards], sizes)
    number = np.empty(len(ranks), np.int32)
    number[np.lexsort((np.concatenate(ids), ranks))] = np.arange(len(ranks), dtype=np.int32)
    of_shards = np.split(number, np.cumsum(sizes)[:-1])
    return [
        of_shard[np.searchsorted(chosen, of_rows)]
        for of_shard, chosen, of_rows in zip(of_shards, documents, rows, strict=True)
    ]
