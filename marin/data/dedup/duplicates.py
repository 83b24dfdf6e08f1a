"""Duplicate removal as a chain of maps: keys, buckets, components, texts of candidates, verification, verdicts.

What lies between two maps are files that are dealt out by hash or by component; no process holds more of a document
that matches nothing than numbers. How many tasks there are follows from the number of documents, so that the result
is the same for any number of workers.

Imports numpy and pyarrow; import this module inside step bodies only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from marin.data.dedup.buckets import BucketCounts, Edges, Scanned, ScanTask, join_part, join_tasks, scan_group
from marin.data.dedup.candidates import Clustered, ClusterTask, cluster
from marin.data.dedup.components import connected_partitioned
from marin.data.dedup.config import DedupConfig
from marin.data.dedup.exchange import parts_for
from marin.data.dedup.places import Origin, Places, places_of
from marin.data.dedup.reading import ReadGroup, ReadTask, read_group
from marin.data.dedup.report import write_report
from marin.data.dedup.settling import Verified, VerifyTask, verify
from marin.data.dedup.verdicts import WriteTask, WrittenGroup, write_group
from marin.data.documents.artifacts import Attributes, Documents
from marin.data.documents.attributes import attributes_of, settings_of
from marin.execution import Intermediate, StepError, current_run


def deduplicate_inside(pages: Documents, signals: Attributes, config: DedupConfig) -> Attributes:
    """Find the duplicates within one artifact; the body of the step."""
    return _deduplicate([Origin(pages, signals)], config, across=False)


def deduplicate_over(
    pages: Sequence[Documents], signals: Sequence[Attributes], inside: Sequence[Attributes], config: DedupConfig
) -> Attributes:
    """Find the duplicates across artifacts whose own duplicates are known; the body of the step."""
    if not len(pages) == len(signals) == len(inside):
        raise StepError(
            f"deduplicate_across got {len(pages)} documents, {len(signals)} signals and the duplicates within "
            f"{len(inside)}; give the signals and the duplicates of each, in order"
        )
    origins = [Origin(*parts) for parts in zip(pages, signals, inside, strict=True)]
    return _deduplicate(origins, config, across=True)


def _deduplicate(origins: Sequence[Origin], config: DedupConfig, *, across: bool) -> Attributes:
    run = current_run()
    settings = _common_settings(origins, config)
    places = places_of(origins, config.documents_per_task)
    groups = places.groups
    scanned: list[Scanned] = []
    clustered = Clustered((None,) * len(groups), (None,) * len(groups), (), 0, 0)
    buckets = BucketCounts()
    # Within one source everything is known already.
    if groups and not (across and len({piece.origin for group in groups for piece in group.pieces}) == 1):
        parts = parts_for(places.documents, config.documents_per_task) if len(groups) > 1 else 0
        scanned = run.map(scan_group, [ScanTask(group, parts, config) for group in groups])
        joined = run.map(join_part, join_tasks(scanned, parts), unit="parts") if parts else []
        edges = (*(one.edges for one in scanned), *(one.edges for one in joined))
        (clustered,) = run.map(
            cluster,
            [
                ClusterTask(
                    scanned=tuple(scanned),
                    edges=edges,
                    labels=_labels(edges, config),
                    group_starts=places.group_starts,
                    origin_starts=places.origin_starts,
                    across=across,
                    config=config,
                )
            ],
            unit="graphs",
        )
        buckets = sum([*(one.buckets for one in scanned), *(one.buckets for one in joined)], BucketCounts())
    verified = _verify(places, clustered, config, across=across)
    written = run.map(
        write_group,
        [
            WriteTask(
                group,
                places.origin_starts,
                places.sources,
                tuple(file for one in verified if (file := one.fates[group.number]) is not None),
                settings,
            )
            for group in groups
        ],
    )
    _write_removed(written)
    counts = _counts(places, scanned, clustered, buckets, verified, written, settings)
    shards = tuple(shard for one in written for shard in one.shards)
    if not across:
        run.write_json("report.json", counts)
        return attributes_of("duplicates_within", shards)
    write_report([origin.pages for origin in origins], shards, config, further=counts)
    return attributes_of("duplicates", shards)


def _common_settings(origins: Sequence[Origin], config: DedupConfig) -> dict[str, str]:
    """What all signals were made with, and what the verdicts are made with.

    Raises:
        StepError: they do not go together.
    """
    common: dict[str, str] = {}
    first = ""
    for origin in origins:
        name = origin.pages.source or origin.pages.identity[:10]
        found = settings_of(origin.signals) or {}
        if found and not common:
            common, first = found, name
        if found and found != common:
            raise StepError(
                f"the signals of {name} were made with {_told(found)}, those of {first} with {_told(common)}: their "
                "LSH bands cannot be compared; annotate all sources with the same SignalConfig.minhash and longest_text"
            )
        verdicts = None if origin.inside is None else settings_of(origin.inside)
        wanted = {**found, **config.settings()}
        if verdicts is not None and verdicts != wanted:
            raise StepError(
                f"the duplicates within {name} were found with {_told(verdicts)}, but are joined with "
                f"{_told(wanted)}; give deduplicate and deduplicate_across the same DedupConfig"
            )
    return {**common, **config.settings()}


def _told(settings: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(settings.items()))


def _labels(edges: Sequence[Edges], config: DedupConfig) -> tuple[Intermediate, ...] | None:
    """The components, where there are too many edges for one task to connect them."""
    files = [file for one in edges for file in (one.words, one.urls, one.bands)]
    count = sum(one.count for one in edges)
    if count <= config.edges_in_memory:
        return None
    return tuple(connected_partitioned(current_run(), files, parts_for(count, config.edges_in_memory)))


def _verify(places: Places, clustered: Clustered, config: DedupConfig, *, across: bool) -> list[Verified]:
    """Compare the candidates, then those whose keeper was dropped with what stays."""
    run = current_run()
    wanted = [(file,) if file is not None else () for file in clustered.wanted]
    found = _read(places, wanted, clustered.followers, config)

    def task(number: int, parts: int, carried: Intermediate | None, over: bool) -> VerifyTask:
        files = [(dealt.part, dealt.file) for one in found for dealt in one.candidates if dealt.task == number]
        return VerifyTask(
            number=number,
            parts=tuple(tuple(file for of_part, file in files if of_part == part) for part in range(parts)),
            followers=tuple(dealt.file for one in found for dealt in one.followers if dealt.task == number),
            carried=carried,
            group_starts=places.group_starts,
            across=over,
            config=config,
        )

    verified = run.map(
        verify, [task(number, parts, None, across) for number, parts in enumerate(clustered.bins)], unit="components"
    )
    if not any(one.stay for one in verified):
        return verified
    orphans = [
        tuple(file for one in verified if (file := one.orphans[group.number]) is not None) for group in places.groups
    ]
    found = _read(places, orphans, (None,) * len(places.groups), config)
    again = run.map(
        verify,
        [task(number, one.orphan_parts, one.stay, False) for number, one in enumerate(verified) if one.stay],
        unit="components",
    )
    return [*verified, *again]


def _read(
    places: Places,
    wanted: Sequence[tuple[Intermediate, ...]],
    followers: Sequence[Intermediate | None],
    config: DedupConfig,
) -> list[ReadGroup]:
    tasks = [
        ReadTask(group, places.sources, of_group, following, config)
        for group, of_group, following in zip(places.groups, wanted, followers, strict=True)
        if of_group or following is not None
    ]
    return current_run().map(read_group, tasks)


def _write_removed(written: Sequence[WrittenGroup]) -> None:
    run = current_run()
    with run.write("removed.jsonl") as stream:
        for one in written:
            if one.removed is not None:
                stream.write(run.load_intermediate(one.removed))


def _counts(
    places: Places,
    scanned: Sequence[Scanned],
    clustered: Clustered,
    buckets: BucketCounts,
    verified: Sequence[Verified],
    written: Sequence[WrittenGroup],
    settings: dict[str, str],
) -> dict[str, Any]:
    """What ``report.json`` says of how the duplicates were found."""
    removed: Counter[str] = Counter()
    pairs: Counter[str] = Counter()
    for one in written:
        removed.update(one.reasons)
        pairs.update(one.pairs)
    return {
        "documents": places.documents,
        "kept": places.documents - removed.total(),
        "removed": dict(sorted(removed.items())),
        "removed_by_source": dict(sorted(pairs.items())),
        "without_words": sum(one.without_words for one in scanned),
        "clusters": sum(one.leading for one in written),
        "components": clustered.components,
        "largest_component": clustered.largest,
        "buckets": {"shared": buckets.shared, "heavy": buckets.heavy, "largest": buckets.largest},
        "uncompared": sum(one.uncompared for one in verified),
        "settings": settings,
    }
