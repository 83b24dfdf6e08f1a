"""Overlap of training documents with evaluation items, by n-grams of plain words.

Imports pyarrow and numpy; import this module inside step bodies only.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from marin.data.dedup.config import DecontaminationConfig
from marin.data.documents.artifacts import Attributes, AttributeShard, Documents, DocumentShard
from marin.data.documents.attributes import attributes_of, write_attributes
from marin.data.documents.io import iterate_batches
from marin.data.documents.split import split_of
from marin.data.evalsets.artifacts import ITEMS_FILE, EvalSet
from marin.data.filtering.words import ALPHABETIC, WordTable, n_gram_hashes, plain_hashes_of
from marin.execution import Flow, current_run

KIND = "contamination"
CONTAMINATED = "contaminated"
_MOST_ITEMS = 20
"""Item ids and spans that are kept for one document, and examples for one evaluation set."""


@dataclass
class ItemIndex:
    """N-grams of evaluation items.

    Attributes:
        grams: hashes of the n-grams by their length, each mapped to the items (set, id) that have them.
        items: number of items by set.
        too_short: items by set that are too short to be looked for.
    """

    grams: dict[int, dict[int, list[tuple[str, str]]]] = field(default_factory=lambda: defaultdict(dict))
    items: Counter[str] = field(default_factory=Counter)
    too_short: Counter[str] = field(default_factory=Counter)

    def sorted_hashes(self) -> dict[int, NDArray[np.uint64]]:
        """The hashes of each length in ascending order."""
        return {length: np.array(sorted(found), np.uint64) for length, found in sorted(self.grams.items())}


def index_items(items: Iterator[tuple[str, str, str]], config: DecontaminationConfig) -> ItemIndex:
    """Index (set, id, text) by n-grams. N-grams without a letter are left out: numbers recur everywhere."""
    index = ItemIndex()
    table = WordTable()
    for name, item_id, text in items:
        index.items[name] += 1
        words, _ = table.split([text.split()])
        words = words[table.plain_hashes[words] != 0]
        length = min(len(words), config.n_gram)
        if length < min(config.shortest_item, config.n_gram):
            index.too_short[name] += 1
            continue
        letters = np.cumsum(np.concatenate([[0], (table.kinds[words] & ALPHABETIC) != 0]))
        found = index.grams[length]
        for at, gram in enumerate(n_gram_hashes(table.plain_hashes[words], length).tolist()):
            if letters[at + length] > letters[at]:
                owners = found.setdefault(gram, [])
                # Items come one after the other, so only the last owner can be this one again.
                if not owners or owners[-1] != (name, item_id):
                    owners.append((name, item_id))
    return index


def matches(plain_words: NDArray[np.uint64], hashes: dict[int, NDArray[np.uint64]]) -> Iterator[tuple[int, int, int]]:
    """Every n-gram of a text that is among the hashes: (length, hash, number of its first word)."""
    for length, known in hashes.items():
        grams = n_gram_hashes(plain_words, length)
        if not len(grams) or not len(known):
            continue
        at = np.minimum(np.searchsorted(known, grams), len(known) - 1)
        for place in np.flatnonzero(known[at] == grams).tolist():
            yield length, int(grams[place]), place


@dataclass(frozen=True)
class _Task:
    """One document shard to compare. Pickles."""

    pages: Documents
    shard: DocumentShard
    hashes: dict[int, NDArray[np.uint64]]
    validation_share: float


@dataclass(frozen=True)
class _Scan:
    """What one shard came back with: its hits lie in a file."""

    hits: str
    training: int


def decontaminate_documents(
    pages: Sequence[Documents], evalsets: Sequence[EvalSet], config: DecontaminationConfig
) -> Attributes:
    """Compare every training document with every item; the body of the step."""
    run = current_run()
    index = index_items(_items(evalsets), config)
    hashes = index.sorted_hashes()
    share = max((evalset.validation_share for evalset in evalsets), default=0.0)
    tasks = [_Task(documents, shard, hashes, share) for documents in pages for shard in documents.shards]
    scans = run.map(_scan_shard, tasks)
    hits = [_read_hits(scan) for scan in scans]
    training = sum(scan.training for scan in scans)
    limit = max(config.common_documents, int(config.common_share * training))
    common = _common(hits, limit)
    report = _Report(index, common)
    shards = []
    for task, found in zip(tasks, hits, strict=True):
        shards.append(_judge_shard(task, found, common, config, report))
    run.write_json("report.json", report.summary(training, limit))
    contaminated = report.contaminated
    total = sum(task.shard.rows for task in tasks)
    dropped = {CONTAMINATED: contaminated} if contaminated else {}
    run.account(Flow(unit="documents", read=total, kept=total - contaminated, dropped=dropped))
    return attributes_of(KIND, shards)


def _items(evalsets: Sequence[EvalSet]) -> Iterator[tuple[str, str, str]]:
    for evalset in evalsets:
        for row in evalset.lines(ITEMS_FILE):
            yield evalset.name, row["id"], row["text"]


def _scan_shard(task: _Task) -> _Scan:
    """Find all n-grams of the shard's training documents that occur in some item."""
    run = current_run()
    table = WordTable()
    rows: dict[str, list[Any]] = {"row": [], "length": [], "gram": [], "place": [], "text_hash": []}
    row = training = 0
    for batch in iterate_batches(task.pages, task.shard, columns=("id", "text", "text_hash")):
        columns = batch.to_pydict()
        for document_id, text, text_hash in zip(columns["id"], columns["text"], columns["text_hash"], strict=True):
            if split_of(document_id, task.validation_share) == "train":
                training += 1
                for length, gram, place in matches(plain_hashes_of(text, table), task.hashes):
                    for name, value in zip(rows, (row, length, gram, place, text_hash), strict=True):
                        rows[name].append(value)
            row += 1
        run.progress(row, task.shard.rows)
    kinds = {
        "row": pa.int64(),
        "length": pa.int32(),
        "gram": pa.uint64(),
        "place": pa.int64(),
        "text_hash": pa.string(),
    }
    name = f"hits/{task.pages.identity[:10]}/{task.shard.name}"
    with run.write(name) as stream:
        pq.write_table(pa.table({key: pa.array(rows[key], kind) for key, kind in kinds.items()}), stream)
    return _Scan(name, training)


def _read_hits(scan: _Scan) -> dict[str, list[Any]]:
    run = current_run()
    with run.spec.store.open(run.files[scan.hits].key) as stream:
        found: dict[str, list[Any]] = pq.ParquetFile(stream).read().to_pydict()
    return found


def _common(hits: Sequence[dict[str, list[Any]]], limit: int) -> set[tuple[int, int]]:
    """N-grams (length, hash) that occur in more different texts than the limit."""
    texts: dict[tuple[int, int], set[str]] = defaultdict(set)
    for found in hits:
        for length, gram, text_hash in zip(found["length"], found["gram"], found["text_hash"], strict=True):
            known = texts[length, gram]
            if len(known) <= limit:
                known.add(text_hash)
    return {key for key, known in texts.items() if len(known) > limit}


class _Report:
    """Counts by evaluation set."""

    def __init__(self, index: ItemIndex, common: set[tuple[int, int]]) -> None:
        self.index = index
        self.contaminated = 0
        self._common = common
        self._documents: Counter[str] = Counter()
        self._items: dict[str, set[str]] = defaultdict(set)
        self._examples: dict[str, list[dict[str, str]]] = defaultdict(list)

    def owners(self, length: int, gram: int) -> list[tuple[str, str]]:
        """The items that have an n-gram."""
        return self.index.grams[length][gram]

    def add(self, document_id: str, items: dict[str, set[str]]) -> None:
        """Count a contaminated document with the items found in it, by set."""
        self.contaminated += 1
        for name, found in items.items():
            self._documents[name] += 1
            self._items[name] |= found
            self._examples[name].append({"document": document_id, "item": min(found)})

    def summary(self, training: int, limit: int) -> dict[str, Any]:
        """What ``report.json`` says."""
        return {
            "training_documents": training,
            "contaminated_documents": self.contaminated,
            "common_n_gram_limit": limit,
            "sets": {name: self._of_set(name) for name in sorted(self.index.items)},
        }

    def _of_set(self, name: str) -> dict[str, Any]:
        grams = common = 0
        for length, found in self.index.grams.items():
            own = [gram for gram, owners in found.items() if any(owner == name for owner, _ in owners)]
            grams += len(own)
            common += sum((length, gram) in self._common for gram in own)
        return {
            "items": self.index.items[name],
            "items_too_short": self.index.too_short[name],
            "items_found": len(self._items[name]),
            "n_grams": grams,
            "n_grams_common": common,
            "documents": self._documents[name],
            "examples": sorted(self._examples[name], key=lambda row: row["document"])[:_MOST_ITEMS],
        }


def _judge_shard(
    task: _Task,
    hits: dict[str, list[Any]],
    common: set[tuple[int, int]],
    config: DecontaminationConfig,
    report: _Report,
) -> AttributeShard:
    found: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for row, length, gram, place in zip(hits["row"], hits["length"], hits["gram"], hits["place"], strict=True):
        if (length, gram) not in common:
            found[row].append((place, length, gram))
    ids = [
        document_id
        for batch in iterate_batches(task.pages, task.shard, columns=("id",))
        for document_id in batch.column("id").to_pylist()
    ]
    reasons: list[str | None] = [None] * len(ids)
    sets: list[list[str]] = [[] for _ in ids]
    items: list[list[str]] = [[] for _ in ids]
    starts: list[list[int]] = [[] for _ in ids]
    ends: list[list[int]] = [[] for _ in ids]
    for row, places in found.items():
        grams: dict[str, set[int]] = defaultdict(set)
        owned: dict[str, set[str]] = defaultdict(set)
        for _, length, gram in places:
            for name, item in report.owners(length, gram):
                grams[name].add(gram)
                owned[name].add(item)
        owned = {name: owned[name] for name, seen in grams.items() if len(seen) >= config.minimum_matches}
        if not owned:
            continue
        reasons[row] = CONTAMINATED
        sets[row] = sorted(owned)
        items[row] = sorted({f"{name}/{item}" for name, held in owned.items() for item in held})[:_MOST_ITEMS]
        spans = merged_spans((place, place + length) for place, length, _ in places)[:_MOST_ITEMS]
        starts[row], ends[row] = [span[0] for span in spans], [span[1] for span in spans]
        report.add(ids[row], owned)
    table = pa.table(
        {
            "id": pa.array(ids, pa.string()),
            "reason": pa.array(reasons, pa.string()),
            "evaluation_sets": pa.array(sets, pa.list_(pa.string())),
            "evaluation_items": pa.array(items, pa.list_(pa.string())),
            "first_words": pa.array(starts, pa.list_(pa.int64())),
            "last_words": pa.array(ends, pa.list_(pa.int64())),
        }
    )
    return write_attributes(current_run().write, task.pages, task.shard, table, stem=KIND)


def merged_spans(spans: Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans [begin, end) of words, ascending, with those that overlap or touch made one; ends become inclusive."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end - 1))
        else:
            merged.append((begin, end - 1))
    return merged
