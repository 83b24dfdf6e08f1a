"""The survivors do not depend on shards, their order, or which source is named first."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.data.dedup.runs import run_dedup
from tests.data.dedup.texts import changed, prose
from tests.data.pages import Page, PageSet

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
