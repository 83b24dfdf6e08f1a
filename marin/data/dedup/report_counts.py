"""What the report of duplicate removal counts: every shard of verdicts, then every partition of clusters.

Imports pyarrow and numpy; import this module inside step bodies only.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash
from numpy.typing import NDArray

from marin.data.dedup.columns import integers, present
from marin.data.documents.artifacts import AttributeShard, Documents, DocumentShard
from marin.data.documents.io import iterate_batches
from marin.execution import Intermediate, Run, StepError, current_run

SAMPLE = 100
"""Removed documents that are compared again."""

LARGEST = 10
"""Clusters that are shown."""

_PARTITION_ROWS = 10_000_000
"""Documents in clusters whose numbers one task holds: about 0.4 GB."""


@dataclass(frozen=True)
class Place:
    """A shard of documents with its verdicts."""

    pages: Documents
    shard: DocumentShard
    verdicts: Intermediate
    source: int
    partitions: int


@dataclass(frozen=True)
class Row:
    """A row of the verdicts; of a document that stays, ``reason`` is empty and ``duplicate_of`` its own id.

    ``containment`` is None where no text was compared.
    """

    id: str
    reason: str
    duplicate_of: str
    containment: float | None
    cluster: str

    @property
    def draw(self) -> tuple[int, str]:
        """Rows are drawn in this order, which is the same for any sharding."""
        return hash_of(self.id), self.id


@dataclass(frozen=True)
class Surveyed:
    """What one shard holds.

    Attributes:
        text_bytes: of all its documents.
        removed: documents and bytes by reason.
        clustered: for each partition, the rows of documents in clusters.
        sample: the first removed rows in the order of drawing.
    """

    text_bytes: int
    removed: dict[str, tuple[int, int]]
    clustered: tuple[Intermediate, ...]
    sample: tuple[Row, ...]


@dataclass(frozen=True)
class Partition:
    """Clusters whose hashes fall into one partition: the rows of them in each shard."""

    files: tuple[Intermediate, ...]
    sources: int


@dataclass(frozen=True)
class Large:
    """A cluster by the hash of its id."""

    hash: int
    documents: int
    text_bytes: int
    kept: int


@dataclass(frozen=True)
class Tallied:
    """What one partition of clusters adds up to; ``pairs`` holds source, source of the kept one, documents, bytes."""

    clusters: int
    sizes: dict[str, int]
    pairs: tuple[tuple[int, int, int, int], ...]
    largest: tuple[Large, ...]


def places_of(
    run: Run, pages: Sequence[Documents], shards: Sequence[AttributeShard], sources: Sequence[str]
) -> list[Place]:
    verdicts = {(one.documents, one.document_shard): run.files[one.name] for one in shards}
    partitions = 1 + sum(documents.rows for documents in pages) // _PARTITION_ROWS
    places = []
    for documents in pages:
        for shard in documents.shards:
            file = verdicts[documents.identity, shard.name]
            written = Intermediate(file.name, file.size, file.sha256, file.key, "")
            places.append(Place(documents, shard, written, sources.index(shard.source), partitions))
    return places


def verdicts_of(place: Place) -> pa.Table:
    """The verdicts on a shard, as far as the report needs them."""
    data = current_run().load_intermediate(place.verdicts)
    columns = ["id", "reason", "duplicate_of", "containment", "cluster"]
    return pq.ParquetFile(io.BytesIO(data)).read(columns=columns)


def survey(place: Place) -> Surveyed:
    """Count what was removed from a shard, and leave what is needed of the documents in clusters."""
    run = current_run()
    table = verdicts_of(place)
    gone, inside = present(table.column("reason")), present(table.column("cluster"))
    untraced = np.flatnonzero(gone & ~(inside & present(table.column("duplicate_of"))))
    if len(untraced):
        row = table.slice(untraced[0], 1).to_pylist()[0]
        raise StepError(f"the verdict on {row['id']} is {row['reason']}, with no cluster or no document that stays")
    sizes = np.concatenate(
        [np.zeros(0, np.int64)]
        + [
            integers(pa.chunked_array([pc.binary_length(batch.column("text"))]))
            for batch in iterate_batches(place.pages, place.shard, columns=("text",))
        ]
    )
    clustered = table.filter(pa.array(inside))
    numbers = np.stack(
        [
            hashes_of(clustered.column("cluster")),
            hashes_of(pc.coalesce(clustered.column("duplicate_of"), clustered.column("id"))),
            ~gone[inside],
            np.full(clustered.num_rows, place.source),
            sizes[inside],
        ],
        axis=1,
    ).astype(np.int64)
    part = numbers[:, 0] % place.partitions
    removed = table.filter(pa.array(gone))
    return Surveyed(
        text_bytes=int(sizes.sum()),
        removed=_by_reason(removed.column("reason"), sizes[gone]),
        clustered=tuple(
            run.store_intermediate(f"report/clustered-{number:05d}.npy", _bytes(numbers[part == number]))
            for number in range(place.partitions)
        ),
        sample=_drawn(removed),
    )


def _by_reason(reasons: pa.ChunkedArray, sizes: NDArray[np.int64]) -> dict[str, tuple[int, int]]:
    """Documents and bytes of each reason."""
    counts = (
        pa.table({"reason": reasons, "size": sizes}).group_by("reason").aggregate([("size", "count"), ("size", "sum")])
    )
    return {row["reason"]: (row["size_count"], row["size_sum"]) for row in counts.sort_by("reason").to_pylist()}


def _drawn(removed: pa.Table) -> tuple[Row, ...]:
    """The first rows in the order of drawing."""
    hashes = hashes_of(removed.column("id"))
    first = np.flatnonzero(hashes <= np.sort(hashes)[:SAMPLE][-1]) if len(hashes) else hashes
    rows = [Row(**row) for row in removed.take(pa.array(first)).to_pylist()]
    return tuple(sorted(rows, key=lambda row: row.draw)[:SAMPLE])


def tally(task: Partition) -> Tallied:
    """Sizes of clusters, and from which source to which documents gave way."""
    run = current_run()
    tables = [np.load(io.BytesIO(run.load_intermediate(file)), allow_pickle=False) for file in task.files]
    cluster, survivor, stays, source, text_bytes = np.concatenate(tables).T
    kept = stays == 1
    ids, number = np.unique(cluster, return_inverse=True)
    documents = np.bincount(number, minlength=len(ids))
    survivors = np.bincount(number[kept], minlength=len(ids))
    sums = _sums(number, text_bytes, len(ids))
    known = np.argsort(survivor[kept], kind="stable")
    names, of_name = survivor[kept][known], np.flatnonzero(kept)[known]
    gone = np.flatnonzero(~kept)
    place = np.minimum(np.searchsorted(names, survivor[gone]), max(0, len(names) - 1))
    if len(gone) and (not len(names) or (names[place] != survivor[gone]).any()):
        raise StepError("a removed document names one that does not stay, or is in another cluster; this is a defect")
    stand_in = of_name[place] if len(gone) else gone
    if (cluster[stand_in] != cluster[gone]).any():
        raise StepError("a removed document names one in another cluster; this is a defect of the step")
    pair = source[gone] * task.sources + source[stand_in]
    counts, pair_bytes = np.bincount(pair, minlength=1), _sums(pair, text_bytes[gone], 1)
    order = np.lexsort((ids, -documents))[:LARGEST]
    binned, in_bin = np.unique(1 << np.floor(np.log2(documents)).astype(np.int64), return_counts=True)
    return Tallied(
        clusters=len(ids),
        sizes={str(least): count for least, count in zip(binned.tolist(), in_bin.tolist(), strict=True)},
        pairs=tuple(
            (at // task.sources, at % task.sources, int(counts[at]), int(pair_bytes[at]))
            for at in np.flatnonzero(counts).tolist()
        ),
        largest=tuple(
            Large(int(ids[at]), int(documents[at]), int(sums[at]), int(survivors[at])) for at in order.tolist()
        ),
    )


def hash_of(text: str) -> int:
    """63 bits of a text."""
    return xxhash.xxh3_64_intdigest(text) >> 1


def hashes_of(texts: pa.ChunkedArray) -> NDArray[np.int64]:
    """`hash_of` each text; equal ones are hashed once."""
    encoded = texts.combine_chunks().dictionary_encode()
    hashes = np.array([hash_of(name) for name in encoded.dictionary.to_pylist()], np.int64)
    found: NDArray[np.int64] = hashes[integers(pa.chunked_array([encoded.indices]))]
    return found


def _sums(number: NDArray[np.int64], values: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Sum of the values of each number, exact where floats would round."""
    sums = np.zeros(max(count, int(number.max(initial=-1)) + 1), np.int64)
    np.add.at(sums, number, values)
    return sums


def _bytes(table: NDArray[np.int64]) -> bytes:
    stream = io.BytesIO()
    np.save(stream, table, allow_pickle=False)
    return stream.getvalue()
