"""The survivors, and the bytes, do not depend on workers, on shards, on their order, or on which source is first."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from marin.data.dedup.config import DedupConfig
from marin.data.dedup.steps import deduplicate, deduplicate_across
from marin.data.documents.artifacts import Attributes, Documents, DocumentShard
from marin.data.filtering.steps import annotate
from marin.execution import current_run, step
from tests.data.dedup.runs import EVERYTHING_PASSES, run_dedup
from tests.data.dedup.texts import changed, prose
from tests.data.dedup.workers import made_by
from tests.data.pages import Page, PageSet, spread

CLUSTERS = (
    *(({f"b{n}": prose(n), f"exact{n}": prose(n)}) for n in range(3)),
    *(({f"b{n}": prose(n), f"near{n}": changed(prose(n), 3)}) for n in range(3, 6)),
    {"b6": prose(6)} | {f"clu{n}": changed(prose(6), 2, seed=n) for n in range(4)},
)
CHAIN = {"b7": prose(7), "chain1": changed(prose(7), 40, seed=1)}
CHAIN["chain2"] = changed(CHAIN["chain1"], 40, seed=2)
PAGES = [Page(text, id=name) for cluster in (*CLUSTERS, CHAIN) for name, text in cluster.items()]


def survivors(prefix: Path, shards: int, order: int) -> frozenset[str]:
    pages = list(PAGES)
    random.Random(order).shuffle(pages)
    dealt = tuple(tuple(pages[start::shards]) for start in range(shards))
    return run_dedup(prefix, [PageSet("web", dealt)]).kept


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> frozenset[str]:
    return survivors(tmp_path_factory.mktemp("reference"), 4, 0)


def test_every_certain_cluster_keeps_exactly_one(kept: frozenset[str]) -> None:
    for cluster in CLUSTERS:
        assert len(kept & set(cluster)) == 1
    # The rule is the least id, so it can be said which one.
    assert {min(cluster) for cluster in CLUSTERS} <= kept
    assert kept & set(CHAIN)


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_the_survivors_are_the_same_for_every_sharding_and_order(
    tmp_path: Path, kept: frozenset[str], shards: int
) -> None:
    assert survivors(tmp_path, shards, order=shards) == kept


@dataclass(frozen=True)
class Listed:
    """Pages whose shards are listed in an order that is drawn."""

    pages: PageSet
    order: int


@step("test/listed", version="1")
def listed_pages(config: Listed) -> Documents:
    """The same files whatever the order is, listed in it."""
    from marin.data.documents.io import DocumentWriter, documents_of
    from marin.data.documents.schema import Document, text_hash

    written: list[DocumentShard] = []
    for number, pages in enumerate(config.pages.shards):
        with DocumentWriter(current_run().write, f"pages-{number}", source=config.pages.source) as writer:
            for page in pages:
                writer.write(Document(page.id, page.text, text_hash(page.text), config.pages.source))
        written.extend(writer.shards)
    return documents_of(config.pages.source, random.Random(config.order).sample(written, len(written)))


def graph(order: int) -> Attributes:
    """Two sources that share copies; shards and sources in an order that is drawn."""
    config = DedupConfig(priority=("b", "a"), documents_per_task=6, n_grams_per_task=500)
    sets = [
        PageSet("a", spread(PAGES[::2], 4)),
        PageSet("b", spread([replace(p, id=f"z{p.id}") for p in PAGES[1::3]], 3)),
    ]
    sets = random.Random(order).sample(sets, len(sets))
    pages = [listed_pages(Listed(one, order)) for one in sets]
    signals = [annotate(documents, EVERYTHING_PASSES) for documents in pages]
    within = [
        deduplicate(documents, judged, config.inside(one.source))
        for documents, judged, one in zip(pages, signals, sets, strict=True)
    ]
    return deduplicate_across(pages, signals, within, config)


def content_of(attributes: Attributes) -> dict[tuple[str, int, bytes], int]:
    """What the files hold. Folders are named for the pages, whose identity holds the order here."""
    found: dict[tuple[str, int, bytes], int] = {}
    for name in attributes.names():
        data = attributes.read(name)
        found[name.rpartition("/")[2], len(data), data] = 1
    return found


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Attributes:
    return made_by(1, graph(0), tmp_path_factory.mktemp("bytes"))


@pytest.mark.parametrize("workers", [2, 3, 7])
def test_the_bytes_are_the_same_for_every_number_of_workers_and_every_order(
    tmp_path: Path, reference: Attributes, workers: int
) -> None:
    assert reference.read_json("report.json")["removed"].keys() == {"duplicate_exact", "duplicate_fuzzy"}
    assert content_of(made_by(workers, graph(order=workers), tmp_path)) == content_of(reference)
