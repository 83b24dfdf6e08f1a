"""Which documents of a shard overlap which evaluation items, and where."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marin.data.dedup.config import DecontaminationConfig
from marin.data.dedup.overlap.arrays import pack, pack_texts, unpack
from marin.data.dedup.overlap.evidence import Evidence, Example, Overlap
from marin.data.dedup.overlap.index import Owners
from marin.data.dedup.overlap.words import WordReader, word_places
from marin.data.documents.artifacts import AttributeShard, Documents, DocumentShard
from marin.data.documents.attributes import write_attributes
from marin.data.documents.io import iterate_batches
from marin.execution import Flow, Intermediate, current_run

KIND = "contamination"
CONTAMINATED = "contaminated"
_EXCERPT = 400
"""Characters of the longest text of an example."""
_COLUMNS = {
    "id": pa.string(),
    "reason": pa.string(),
    "evaluation_sets": pa.list_(pa.string()),
    "evaluation_items": pa.list_(pa.string()),
    "starts": pa.list_(pa.int64()),
    "ends": pa.list_(pa.int64()),
    "first_words": pa.list_(pa.int64()),
    "last_words": pa.list_(pa.int64()),
    "items_left_out": pa.int64(),
    "spans_left_out": pa.int64(),
}


@dataclass(frozen=True)
class JudgeTask:
    """One document shard with its hits.

    Attributes:
        pages: the documents.
        shard: the shard of them.
        hits: the n-grams that were found in it, or None.
        common: numbers of n-grams that are no evidence.
        owners: the items of each n-gram.
        config: what counts as overlap.
    """

    pages: Documents
    shard: DocumentShard
    hits: Intermediate | None
    common: tuple[Intermediate, ...]
    owners: Intermediate
    config: DecontaminationConfig


@dataclass(frozen=True)
class Judgement:
    """What one shard came back with.

    Attributes:
        attributes: the attribute file.
        contaminated: number of documents that overlap an item.
        found: figures of the items that were found (see `_figures`); None without any.
    """

    attributes: AttributeShard
    contaminated: int
    found: Intermediate | None


@dataclass
class _Shard:
    """What is read of a shard: all ids, and of rows with overlap the places and excerpts of texts."""

    ids: list[str] = field(default_factory=list)
    places: dict[int, tuple[list[int], list[int]]] = field(default_factory=dict)
    excerpts: dict[Example, str] = field(default_factory=dict)


def judge_shard(task: JudgeTask) -> Judgement:
    """Write the attributes of one shard.

    Memory: the index of the items, 24 bytes for each hit, and the texts of one row group.
    """
    run = current_run()
    rows = task.shard.rows
    if task.hits is None:
        table = _table(_read(task, [], []), [], None, task.config)
        shard = write_attributes(run.write, task.pages, task.shard, table, stem=KIND)
        run.account(Flow(unit="documents", read=rows, kept=rows, dropped={}))
        return Judgement(shard, 0, None)
    owners = Owners.from_bytes(run.load_intermediate(task.owners))
    common = [unpack(run.load_intermediate(file))["grams"] for file in task.common]
    evidence = Evidence(owners, unpack(run.load_intermediate(task.hits)), common)
    overlaps = list(evidence.overlaps(task.config.minimum_matches))
    examples = evidence.examples(overlaps)
    read = _read(task, overlaps, examples)
    shard = write_attributes(run.write, task.pages, task.shard, _table(read, overlaps, owners, task.config), stem=KIND)
    dropped = {CONTAMINATED: len(overlaps)} if overlaps else {}
    run.account(Flow(unit="documents", read=rows, kept=rows - len(overlaps), dropped=dropped))
    figures = run.store_intermediate("found.npz", _figures(task, evidence, overlaps, read))
    return Judgement(shard, len(overlaps), figures)


def _read(task: JudgeTask, overlaps: list[Overlap], examples: list[Example]) -> _Shard:
    """Read the ids, and the texts where there is overlap."""
    run = current_run()
    by_row = {overlap.row: overlap for overlap in overlaps}
    shown: dict[int, list[Example]] = {}
    for example in examples:
        shown.setdefault(example.row, []).append(example)
    reader = WordReader()
    read = _Shard()
    for batch in iterate_batches(task.pages, task.shard, columns=("id", "text") if overlaps else ("id",)):
        first = len(read.ids)
        read.ids.extend(batch.column("id").to_pylist())
        for row in range(first, len(read.ids)):
            if row not in by_row:
                continue
            text: str = batch.column("text")[row - first].as_py()
            spans = by_row[row].spans[: task.config.most_listed]
            shown_spans = [example.span for example in shown.get(row, ())]
            edges = np.unique(np.array([*spans, *shown_spans], np.int64))
            starts, ends = word_places(text, edges, reader)
            begin_of = dict(zip(edges.tolist(), starts.tolist(), strict=True))
            end_of = dict(zip(edges.tolist(), ends.tolist(), strict=True))
            read.places[row] = [begin_of[first] for first, _ in spans], [end_of[last] for _, last in spans]
            for example in shown.get(row, ()):
                passage = text[begin_of[example.span[0]] : end_of[example.span[1]]]
                read.excerpts[example] = passage if len(passage) <= _EXCERPT else passage[:_EXCERPT] + "…"
        run.progress(len(read.ids), task.shard.rows)
    return read


def _table(read: _Shard, overlaps: list[Overlap], owners: Owners | None, config: DecontaminationConfig) -> pa.Table:
    """The attributes of the shard."""
    most = config.most_listed
    by_row = {overlap.row: overlap for overlap in overlaps}
    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    for row, document_id in enumerate(read.ids):
        values: tuple[Any, ...] = (None, [], [], [], [], [], [], 0, 0)
        overlap = by_row.get(row)
        if overlap is not None and owners is not None:
            names = sorted(f"{owners.names[owners.sets[item]]}/{owners.ids[item]}" for item in overlap.items)
            spans = overlap.spans[:most]
            values = (
                CONTAMINATED,
                sorted(owners.names[number] for number in overlap.sets),
                names[:most],
                *read.places[row],
                [first for first, _ in spans],
                [last for _, last in spans],
                max(0, len(names) - most),
                max(0, len(overlap.spans) - most),
            )
        for name, value in zip(_COLUMNS, (document_id, *values), strict=True):
            columns[name].append(value)
    return pa.table({name: pa.array(columns[name], kind) for name, kind in _COLUMNS.items()})


def _figures(task: JudgeTask, evidence: Evidence, overlaps: list[Overlap], read: _Shard) -> bytes:
    """What the report needs of a shard.

    ``grams``: n-grams that were found; ``items``: items that were found, with the ``documents`` that have each, and
    how many of its n-grams the one with the ``most`` has; ``per_set``: documents of each set; texts: the id of that one
    document for each item, then the examples as JSON.
    """
    owners = evidence.owners
    none = np.zeros(0, np.int64)
    items = np.concatenate([*(overlap.items.astype(np.int64) for overlap in overlaps), none])
    shared = np.concatenate([*(overlap.grams for overlap in overlaps), none])
    rows = np.concatenate([*(np.full(len(one.items), one.row, np.int64) for one in overlaps), none])
    # Of documents that have as much of an item, the least id stands for them.
    ranks: NDArray[np.int64] = np.argsort(np.argsort(np.array(read.ids)))
    order = np.lexsort((ranks[rows], -shared, items))
    numbers, firsts, documents = np.unique(items[order], return_index=True, return_counts=True)
    per_set = np.zeros(len(owners.names), np.int64)
    for overlap in overlaps:
        per_set[overlap.sets] += 1
    counts = owners.gram_counts
    examples = [
        {
            "set": owners.names[owners.sets[example.item]],
            "item": owners.ids[example.item],
            "n_grams_found": example.grams,
            "n_grams": int(counts[example.item]),
            "document": read.ids[example.row],
            "source": task.shard.source,
            "first_word": example.span[0],
            "last_word": example.span[1],
            "text": text,
        }
        for example, text in read.excerpts.items()
    ]
    best = [read.ids[row] for row in rows[order][firsts].tolist()]
    return pack(
        {
            "grams": np.unique(evidence.grams),
            "items": numbers,
            "documents": documents,
            "most": shared[order][firsts],
            "per_set": per_set,
            **pack_texts([*best, *map(json.dumps, examples)]),
        }
    )
