"""Duplicate removal over page sets through the real steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from marin.data.dedup.config import DedupConfig
from marin.data.dedup.steps import deduplicate, deduplicate_across
from marin.data.documents.artifacts import Attributes, Documents
from marin.data.filtering.config import LanguageConfig, Rules, SignalConfig, UrlConfig
from marin.data.filtering.steps import annotate
from marin.execution import materialise
from tests.data.pages import PageSet, write_pages

EVERYTHING_PASSES = SignalConfig(
    language=LanguageConfig(keep=(), minimum_score=0.0),
    rules=Rules(repetition=None, words=None, sentences=None, lines=None),
    url=UrlConfig(integrated_lists=False),
)


@dataclass(frozen=True)
class Outcome:
    """What stays, and the kept id of each removed one."""

    kept: frozenset[str]
    removed: dict[str, str]
    attributes: Attributes


def duplicates_of(
    pages: Sequence[Documents], signals: Sequence[Attributes], config: DedupConfig = DedupConfig()
) -> Attributes:
    """The duplicates within each source, joined."""
    within = [deduplicate(documents, judged, config) for documents, judged in zip(pages, signals, strict=True)]
    return deduplicate_across(pages, signals, within, config)


def run_dedup(
    prefix: Path,
    sets: Sequence[PageSet],
    config: DedupConfig = DedupConfig(),
    signals: SignalConfig = EVERYTHING_PASSES,
) -> Outcome:
    """Write, annotate and deduplicate; ids must be unique."""
    pages = [write_pages(pages) for pages in sets]
    judged = [annotate(documents, signals) for documents in pages]
    within = [
        deduplicate(documents, signals_of, config.inside(one.source))
        for documents, signals_of, one in zip(pages, judged, sets, strict=True)
    ]
    attributes = materialise(deduplicate_across(pages, judged, within, config), prefix=str(prefix))
    rows: list[dict[str, Any]] = [
        row for shard in attributes.shards for row in pq.read_table(attributes.local(shard.name)).to_pylist()
    ]
    kept = frozenset(row["id"] for row in rows if row["reason"] is None)
    removed = {row["id"]: row["duplicate_of"] for row in rows if row["reason"] is not None}
    assert len(kept) + len(removed) == len(rows)
    assert set(removed.values()) <= kept
    return Outcome(kept, removed, attributes)
