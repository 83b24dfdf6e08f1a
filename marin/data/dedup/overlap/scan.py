"""Finding n-grams of evaluation items in the training documents of a shard, and counting the texts that have each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marin.data.dedup.overlap.arrays import pack, unpack
from marin.data.dedup.overlap.index import FENCE, Grams
from marin.data.dedup.overlap.words import CHUNK, WordReader
from marin.data.documents.artifacts import Documents, DocumentShard
from marin.data.documents.io import iterate_batches
from marin.data.documents.split import split_of
from marin.execution import Intermediate, current_run


@dataclass(frozen=True)
class ScanTask:
    """One document shard to look through.

    Attributes:
        pages: the documents.
        shard: the shard of them.
        grams: the n-grams to look for.
        validation_share: share of all documents that never train, and so are not looked at.
        parts: over how many files the n-grams are spread, by hash.
    """

    pages: Documents
    shard: DocumentShard
    grams: Intermediate
    validation_share: float
    parts: int


@dataclass(frozen=True)
class Scan:
    """What one shard came back with.

    Attributes:
        hits: every n-gram found, with its row and its first word; None without any.
        pairs: for each part of the n-grams, which text has which; None without any.
        training: documents that were looked at.
    """

    hits: Intermediate | None
    pairs: tuple[Intermediate | None, ...]
    training: int


def scan_shard(task: ScanTask) -> Scan:
    """Find all n-grams of items in the shard's training documents.

    Memory: the n-grams (16 bytes each, and a table of up to 64 MiB), one batch of documents, 24 bytes for each hit.
    """
    run = current_run()
    grams = Grams.from_bytes(run.load_intermediate(task.grams))
    reader = WordReader()
    found = _Hits()
    row = training = 0
    texts: list[str] = []
    rows: list[int] = []
    marks: list[int] = []
    waiting = 0
    for batch in iterate_batches(task.pages, task.shard, columns=("id", "text", "text_hash")):
        columns = (batch.column(name).to_pylist() for name in ("id", "text", "text_hash"))
        for document_id, text, text_hash in zip(*columns, strict=True):
            if split_of(document_id, task.validation_share) == "train":
                training += 1
                texts.append(text)
                rows.append(row)
                marks.append(int(text_hash[:16], 16))
                waiting += len(text)
                if waiting >= CHUNK:
                    found.look(reader, grams, texts, rows, marks)
                    texts, rows, marks, waiting = [], [], [], 0
            row += 1
        run.progress(row, task.shard.rows)
    found.look(reader, grams, texts, rows, marks)
    return found.store(training, task.parts, len(grams.hashes))


def find_in(texts: Sequence[str], reader: WordReader, grams: Grams) -> dict[str, NDArray[np.int64]]:
    """The n-grams in texts: ``rows`` are numbers of texts, ``places`` first words, ``grams`` n-grams; sorted so."""
    words = reader.read(texts)
    # A fence after each text: no n-gram reaches from one into the next.
    ends = np.cumsum(words.counts)
    starts = ends - words.counts + np.arange(len(texts))
    found = list(grams.find(np.insert(words.hashes, ends, FENCE)))
    numbers = np.concatenate([np.zeros(0, np.int64), *(numbers for numbers, _ in found)])
    places = np.concatenate([np.zeros(0, np.int64), *(places for _, places in found)])
    rows = np.searchsorted(starts, places, side="right") - 1
    places = places - starts[rows]
    order = np.lexsort((numbers, places, rows))
    return {"rows": rows[order], "places": places[order], "grams": numbers[order]}


class _Hits:
    """The n-grams found so far."""

    def __init__(self) -> None:
        self._hits: list[dict[str, NDArray[np.int64]]] = []
        self._pairs: list[NDArray[np.uint64]] = []

    def look(
        self, reader: WordReader, grams: Grams, texts: Sequence[str], rows: Sequence[int], marks: Sequence[int]
    ) -> None:
        """Look through the texts of some rows."""
        if not texts:
            return
        hits = find_in(texts, reader, grams)
        if not len(hits["rows"]):
            return
        pairs = np.stack([hits["grams"].astype(np.uint64), np.array(marks, np.uint64)[hits["rows"]]], axis=1)
        self._pairs.append(_distinct(pairs))
        # Texts come in the order of their rows, so all hits together are sorted too.
        self._hits.append({**hits, "rows": np.array(rows, np.int64)[hits["rows"]]})

    def store(self, training: int, parts: int, count: int) -> Scan:
        """Leave what was found in files."""
        if not self._hits:
            return Scan(None, (None,) * parts, training)
        run = current_run()
        columns = {name: np.concatenate([hits[name] for hits in self._hits]) for name in self._hits[0]}
        file = run.store_intermediate("hits.npz", pack(columns))
        pairs = _distinct(np.concatenate(self._pairs))
        bounds = np.searchsorted(pairs[:, 0], [part_start(part, parts, count) for part in range(parts + 1)])
        files: list[Intermediate | None] = []
        for part, (begin, end) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
            files.append(
                run.store_intermediate(f"pairs/{part:03d}.npz", pack({"pairs": pairs[begin:end]}))
                if end > begin
                else None
            )
        return Scan(file, tuple(files), training)


def _distinct(pairs: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The distinct rows of pairs, ascending."""
    pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    first = np.ones(len(pairs), np.bool_)
    first[1:] = (pairs[1:] != pairs[:-1]).any(axis=1)
    return pairs[first]


def part_start(part: int, parts: int, count: int) -> int:
    """The first n-gram of a part. Their numbers follow their hashes, so the parts are of about equal size."""
    return part * count // parts


@dataclass(frozen=True)
class CountTask:
    """The pairs of all shards in one part of the n-grams, and the number of texts above which one is common."""

    pairs: tuple[Intermediate, ...]
    limit: int


def count_texts(task: CountTask) -> Intermediate | None:
    """The numbers of the n-grams that more different texts have than the limit; None when there are none.

    Memory: 16 bytes for each n-gram of the part and text that has it, no more than ``limit + 1`` texts of each, and
    the pairs of one shard.
    """
    run = current_run()
    common = np.zeros(0, np.uint64)
    pairs = np.zeros((0, 2), np.uint64)
    for done, file in enumerate(task.pairs):
        more = unpack(run.load_intermediate(file))["pairs"]
        pairs = _distinct(np.concatenate([pairs, more[~np.isin(more[:, 0], common)]]))
        grams, counts = np.unique(pairs[:, 0], return_counts=True)
        beyond = grams[counts > task.limit]
        if len(beyond):
            common = np.union1d(common, beyond)
            pairs = pairs[~np.isin(pairs[:, 0], beyond)]
        run.progress(done + 1, len(task.pairs), "files")
    if not len(common):
        return None
    return run.store_intermediate("common.npz", pack({"grams": common.astype(np.int64)}))


def spread(scans: Sequence[Scan], parts: int) -> Iterator[tuple[Intermediate, ...]]:
    """The files of each part of the n-grams, those of all shards in order."""
    for part in range(parts):
        yield tuple(file for scan in scans if (file := scan.pairs[part]) is not None)
