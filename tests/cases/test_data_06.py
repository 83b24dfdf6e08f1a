"""The validation split depends on the document, not on the layout of shards."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from marin.data.cells.config import QualityConfig, TopicConfig
from marin.data.cells.steps import grade, sample_corpus, train_quality, train_topics
from marin.data.consolidation.steps import consolidate
from marin.data.dedup.steps import decontaminate
from marin.data.evalsets.config import EvalSetConfig
from marin.data.evalsets.steps import build_evalset
from marin.data.filtering.steps import annotate
from marin.execution import materialise
from tests.data.dedup.runs import EVERYTHING_PASSES, duplicates_of
from tests.data.dedup.texts import prose
from tests.data.pages import Page, PageSet, write_pages

PAGES = [Page(prose(100 + number), url=f"http://web.invalid/{number}") for number in range(40)]
MORE = [Page(prose(200 + number), url=f"http://web.invalid/more/{number}") for number in range(8)]


def splits(prefix: Path, shards: tuple[tuple[Page, ...], ...]) -> dict[str, set[str]]:
    pages = [write_pages(PageSet("web", shards))]
    signals = [annotate(documents, EVERYTHING_PASSES) for documents in pages]
    duplicates = duplicates_of(pages, signals)
    evalset = build_evalset(pages, signals, duplicates, EvalSetConfig(validation_share=0.25, choice_items=4))
    overlap = decontaminate(pages, (evalset,))
    sample = sample_corpus(pages, signals, duplicates, evalset)
    topics = train_topics(sample, TopicConfig(clusters=1))
    cells = grade(pages, signals, train_quality(sample, topics, QualityConfig(buckets=1)), topics)
    clean = materialise(consolidate(pages, signals, duplicates, overlap, evalset, cells), prefix=str(prefix))
    found: dict[str, set[str]] = {"train": set(), "validation": set()}
    for shard in clean.shards:
        found[shard.split] |= set(pq.read_table(clean.local(shard.name)).column("url").to_pylist())
    return found


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    return splits(tmp_path_factory.mktemp("one"), (tuple(PAGES),))


def test_the_split_is_that_of_the_documents(tmp_path: Path, one: dict[str, set[str]]) -> None:
    five = splits(tmp_path, tuple(tuple(PAGES[start::5]) for start in range(5)))
    assert one == five
    assert one["train"]
    assert one["validation"]
    assert not one["train"] & one["validation"]
    assert len(one["train"]) + len(one["validation"]) == 40


def test_a_further_shard_moves_no_old_document(tmp_path: Path, one: dict[str, set[str]]) -> None:
    grown = splits(tmp_path, (tuple(PAGES), tuple(MORE)))
    for split, urls in one.items():
        assert urls <= grown[split]
