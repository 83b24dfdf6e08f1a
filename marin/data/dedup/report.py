"""The report of duplicate removal, drawn from the verdicts and the texts: sizes, largest clusters, a checked sample.

It reads what the step wrote and nothing that the step computed, so that it is a second opinion: every removed document
must name one that stays, in its own cluster, and of a sample the texts are compared again.

Imports pyarrow and numpy; import this module inside step bodies only.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from marin.data.dedup.columns import arrow_rows
from marin.data.dedup.config import DedupConfig
from marin.data.dedup.report_counts import (
    LARGEST,
    SAMPLE,
    Large,
    Partition,
    Place,
    Row,
    hash_of,
    hashes_of,
    places_of,
    survey,
    tally,
    verdicts_of,
)
from marin.data.dedup.report_page import Checked, Cluster, Member, Shown, Summary, Tally, report_page
from marin.data.documents.addresses import canonical_url
from marin.data.documents.artifacts import AttributeShard, Documents
from marin.data.filtering.splitting import split_piece
from marin.data.filtering.words import plain_word
from marin.execution import Intermediate, Run, current_run

K = TypeVar("K", str, tuple[str, str])

_MEMBERS = 2
"""Documents of a cluster that are shown."""


@dataclass(frozen=True)
class _LookUp:
    """Documents to find in a shard: members of clusters by the hash of the cluster, or texts by id."""

    place: Place
    clusters: tuple[int, ...] = ()
    ids: tuple[str, ...] = ()


def write_report(
    pages: Sequence[Documents],
    shards: Sequence[AttributeShard],
    config: DedupConfig,
    *,
    title: str = "Duplicates",
    further: Mapping[str, Any] | None = None,
) -> None:
    """Write ``report.json`` and ``report.html``; part of the step's body, after its verdicts are written.

    Args:
        pages: the documents.
        shards: the verdicts that this step has written, one for each shard of the pages. Columns: id, reason,
            duplicate_of, containment, cluster.
        config: what counts as a copy.
        title: heading of the page.
        further: counts of the step, for ``report.json``.

    Raises:
        StepError: a removed document has no cluster, or names none that stays in it.
    """
    run = current_run()
    sources = sorted({shard.source for documents in pages for shard in documents.shards})
    places = places_of(run, pages, shards, sources)
    surveyed = run.map(survey, places, unit="verdicts")
    partitions = places[0].partitions if places else 0
    tallied = run.map(
        tally,
        [Partition(tuple(one.clustered[at] for one in surveyed), len(sources)) for at in range(partitions)],
        unit="clusters",
    )
    sample = heapq.nsmallest(SAMPLE, (row for one in surveyed for row in one.sample), key=lambda row: row.draw)
    large = heapq.nsmallest(
        LARGEST, (one for part in tallied for one in part.largest), key=lambda one: (-one.documents, one.hash)
    )
    members = _members_of(run, places, large)
    wanted = {name for row in (*sample, *members) for name in (row.id, row.duplicate_of)}
    shown = _shown(run, places, wanted)
    by_reason = [
        (place.shard.source, reason, Tally(*counts))
        for place, one in zip(places, surveyed, strict=True)
        for reason, counts in one.removed.items()
    ]
    sizes: Counter[int] = Counter()
    for part in tallied:
        sizes.update({int(least): count for least, count in part.sizes.items()})
    summary = Summary(
        title=title,
        documents=sum(place.shard.rows for place in places),
        text_bytes=sum(one.text_bytes for one in surveyed),
        removed=_summed((reason, counts) for _, reason, counts in by_reason),
        by_source={
            source: _summed((reason, counts) for of, reason, counts in by_reason if of == source) for source in sources
        },
        pairs=_summed(
            ((sources[source], sources[kept]), Tally(documents, text_bytes))
            for part in tallied
            for source, kept, documents, text_bytes in part.pairs
        ),
        clusters=sum(part.clusters for part in tallied),
        sizes=dict(sorted(sizes.items())),
        largest=tuple(_cluster(one, members, shown) for one in large),
        sample=tuple(check(row, shown, config) for row in sample),
        containment=config.containment,
        further=dict(further or {}),
    )
    run.write_json("report.json", summary.to_json())
    run.write_bytes("report.html", report_page(summary).encode("utf-8", "replace"))


def _summed(counts: Iterable[tuple[K, Tally]]) -> dict[K, Tally]:
    """The sum of each name's counts, by name."""
    sums: dict[K, Tally] = defaultdict(lambda: Tally(0, 0))
    for name, tally_of_name in counts:
        sums[name] += tally_of_name
    return {name: sums[name] for name in sorted(sums)}


def _members_of(run: Run, places: Sequence[Place], large: Sequence[Large]) -> list[Row]:
    """Some documents of each cluster."""
    if not large:
        return []
    clusters = tuple(one.hash for one in large)
    found = run.map(_members, [_LookUp(place, clusters=clusters) for place in places], unit="members")
    return _first_of_each([row for rows in found for row in rows])


def _members(task: _LookUp) -> list[Row]:
    table = verdicts_of(task.place)
    clustered = table.filter(table.column("cluster").is_valid())
    own = clustered.filter(pa.array(np.isin(hashes_of(clustered.column("cluster")), task.clusters)))
    return _first_of_each(
        [
            Row(row["id"], row["reason"] or "", row["duplicate_of"] or row["id"], row["containment"], row["cluster"])
            for row in own.to_pylist()
        ]
    )


def _first_of_each(rows: Sequence[Row]) -> list[Row]:
    by_cluster: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_cluster[row.cluster].append(row)
    # Removed ones before those that stay, one of which at least tells the cluster's name.
    return [
        row
        for _, of in sorted(by_cluster.items())
        for row in sorted(of, key=lambda row: (not row.reason, row.id))[:_MEMBERS]
    ]


def _shown(run: Run, places: Sequence[Place], ids: set[str]) -> dict[str, Shown]:
    """The documents of these ids."""
    if not ids:
        return {}
    files = run.map(_find, [_LookUp(place, ids=tuple(sorted(ids))) for place in places], unit="texts")
    rows = (Shown(**row) for file in files for row in json.loads(run.load_intermediate(file)))
    return {row.id: row for row in rows}


def _find(task: _LookUp) -> Intermediate:
    wanted, place = frozenset(task.ids), task.place
    found = []
    with place.pages.open(place.shard.name) as stream:
        file = pq.ParquetFile(stream)
        for group in range(file.num_row_groups):
            ids = file.read_row_group(group, columns=["id"]).column("id").to_pylist()
            rows = [at for at, document_id in enumerate(ids) if document_id in wanted]
            if rows:
                table = file.read_row_group(group, columns=["url", "text"]).take(arrow_rows(np.array(rows)))
                for at, row in zip(rows, table.to_pylist(), strict=True):
                    found.append(Shown(ids[at], place.shard.source, row["url"] or "", row["text"]))
    return current_run().store_intermediate("report/texts.json", json.dumps([asdict(one) for one in found]).encode())


def _cluster(large: Large, members: Sequence[Row], shown: Mapping[str, Shown]) -> Cluster:
    own = [row for row in members if hash_of(row.cluster) == large.hash]
    return Cluster(
        id=own[0].cluster,
        documents=large.documents,
        text_bytes=large.text_bytes,
        kept=large.kept,
        survivors=tuple(shown[kept] for kept in dict.fromkeys(row.duplicate_of for row in own)),
        members=tuple(
            Member(shown[row.id], row.reason, row.duplicate_of, row.containment) for row in own if row.reason
        ),
    )


def check(row: Row, shown: Mapping[str, Shown], config: DedupConfig) -> Checked:
    """Compare a removed document with the one that stays, word by word."""
    gone, kept = shown[row.id], shown[row.duplicate_of]
    own, other = list(_plain_words(gone.text)), list(_plain_words(kept.text))
    grams, held = _grams(own, config.n_gram), _grams(other, config.n_gram)
    found = len(grams & held) / max(1, len(grams))
    if row.reason == "duplicate_exact":
        right = own == other
    elif row.reason == "duplicate_url":
        right = canonical_url(gone.url) == canonical_url(kept.url)
    else:
        right = found >= config.containment
    return Checked(row.id, row.duplicate_of, row.reason, row.containment, round(found, 4), right)


def _plain_words(text: str) -> Iterator[str]:
    for piece in text.split():
        for word in split_piece(piece):
            if plain := plain_word(word):
                yield plain


def _grams(words: Sequence[str], size: int) -> set[tuple[str, ...]]:
    """Distinct n-grams; fewer words are one of their own length."""
    return {tuple(words[at : at + size]) for at in range(max(1, len(words) - size + 1))} if words else set()
