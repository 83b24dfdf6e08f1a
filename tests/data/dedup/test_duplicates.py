"""Duplicate removal through its steps: what goes is held by what stays, however the work is cut."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from marin.data.dedup.config import DedupConfig
from marin.data.dedup.steps import deduplicate, deduplicate_across
from marin.data.documents.artifacts import Attributes
from marin.data.filtering.config import MinHashConfig, WordRules
from marin.data.filtering.minhash import shingles
from marin.data.filtering.steps import annotate
from marin.data.filtering.words import WordTable, plain_hashes_of
from marin.execution import StepError, make_plan, materialise
from marin.storage import open_store
from tests.data.dedup.runs import EVERYTHING_PASSES, run_dedup
from tests.data.dedup.texts import changed, prose
from tests.data.pages import Page, PageSet, spread, write_pages

TABLE = WordTable()
PIECEMEAL = DedupConfig(documents_per_task=14, n_grams_per_task=400, edges_in_memory=40)
"""Tasks so small that everything goes through files, in parts."""


def corpus(seed: int, documents: int = 60, sources: int = 3) -> list[PageSet]:
    """Sources full of copies of a few texts, near and far, with chains."""
    draw = random.Random(seed)
    pages: list[list[Page]] = [[] for _ in range(sources)]
    texts: list[str] = [prose(seed + n, sentences=6) for n in range(4)]
    for number in range(documents):
        text = draw.choice(texts)
        if draw.random() < 0.7:
            text = changed(text, draw.choice([1, 2, 4, 12]), seed=number)
            texts.append(text)
        page = Page(text, id=f"{draw.randint(0, 9)}-{number}", url=f"http://x.invalid/{draw.randint(0, 2 * documents)}")
        pages[draw.randrange(sources)].append(page)
    return [PageSet(f"s{n}", spread(own, 3)) for n, own in enumerate(pages)]


def grams_of(text: str) -> frozenset[int]:
    return frozenset(shingles(plain_hashes_of(text, TABLE), 3).tolist())


def rows_of(attributes: Attributes) -> dict[str, dict[str, Any]]:
    return {
        row["id"]: row for shard in attributes.shards for row in pq.read_table(attributes.local(shard.name)).to_pylist()
    }


def content_of(attributes: Attributes) -> dict[str, str]:
    return {name: hashlib.sha256(attributes.read(name)).hexdigest() for name in attributes.names()}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("by_url", [False, True])
def test_what_goes_is_held_by_what_stays_and_small_tasks_give_the_same_bytes(
    tmp_path: Path, seed: int, by_url: bool
) -> None:
    sets = corpus(seed)
    config = DedupConfig(priority=("s2", "s0"), by_url=by_url)
    outcome = run_dedup(tmp_path / "whole", sets, config)
    pages = {page.id: page for one in sets for shard in one.shards for page in shard}
    grams = {name: grams_of(page.text) for name, page in pages.items()}
    rows = rows_of(outcome.attributes)
    assert set(rows) == set(pages)
    reasons = {row["reason"] for row in rows.values()}
    assert reasons >= {None, "duplicate_exact", "duplicate_fuzzy"}
    assert ("duplicate_url" in reasons) == by_url
    leading = {row["duplicate_of"] for row in rows.values()} - {None}
    for name, row in rows.items():
        kept = row["duplicate_of"]
        if kept is None:
            assert row["cluster"] == (name if name in leading else None)
            continue
        assert rows[kept]["reason"] is None
        assert row["cluster"] == kept
        share = len(grams[name] & grams[kept]) / len(grams[name])
        if row["reason"] == "duplicate_url":
            assert pages[name].url == pages[kept].url
        else:
            assert share >= 0.75
            assert row["containment"] == pytest.approx(share, abs=1e-4)
        if row["reason"] == "duplicate_exact":
            assert grams[name] == grams[kept]
    piecemeal = replace(PIECEMEAL, priority=config.priority, by_url=by_url)
    assert content_of(run_dedup(tmp_path / "piecemeal", sets, piecemeal).attributes) == content_of(outcome.attributes)


def test_two_copies_of_equal_words_never_both_stay(tmp_path: Path) -> None:
    sets = corpus(9)
    outcome = run_dedup(tmp_path, sets, PIECEMEAL)
    kept = [grams_of(page.text) for one in sets for shard in one.shards for page in shard if page.id in outcome.kept]
    assert len(set(kept)) == len(kept)


def test_documents_whose_survivor_goes_are_compared_again_with_what_stays(tmp_path: Path) -> None:
    base = prose(1)
    near = changed(base, 20, seed=1)
    # Held by `near`, within its source, but not by the preferred source's text.
    far = changed(near, 22, seed=2)
    grams = {name: grams_of(text) for name, text in (("base", base), ("near", near), ("far", far))}
    assert len(grams["far"] & grams["near"]) >= 0.75 * len(grams["far"])
    assert len(grams["near"] & grams["base"]) >= 0.75 * len(grams["near"])
    assert len(grams["far"] & grams["base"]) < 0.75 * len(grams["far"])
    sets = [
        PageSet("good", ((Page(base, id="base"),),)),
        PageSet(
            "other",
            ((Page(near, id="m-near"), Page(far, id="n-far"), Page(near.upper(), id="o-copy"), Page(far, id="p-far")),),
        ),
    ]
    config = DedupConfig(priority=("good", "other"))
    signals = replace(EVERYTHING_PASSES, minhash=MinHashConfig(bands=40, rows=3))
    outcome = run_dedup(tmp_path / "1", sets, config, signals)
    assert outcome.removed == {"m-near": "base", "o-copy": "base", "p-far": "n-far"}
    rows = rows_of(outcome.attributes)
    assert [rows[name]["reason"] for name in ("m-near", "o-copy", "p-far")] == [
        "duplicate_fuzzy",
        "duplicate_fuzzy",
        "duplicate_exact",
    ]
    alone = run_dedup(tmp_path / "2", sets[1:], config, signals)
    assert alone.removed == {"n-far": "m-near", "o-copy": "m-near", "p-far": "m-near"}


def test_documents_of_one_address_lose_all_but_the_preferred_one_only_when_asked_to(tmp_path: Path) -> None:
    first = (Page(prose(1), id="a", url="http://x.invalid/p"), Page(prose(2), id="b", url="https://x.invalid/p/#top"))
    second = (Page(prose(3), id="c", url="http://X.invalid:80/p"), Page(prose(4), id="d", url="http://x.invalid/q"))
    sets = [PageSet("one", (first,)), PageSet("two", (second,))]
    assert run_dedup(tmp_path / "off", sets).removed == {}
    asked = run_dedup(tmp_path / "on", sets, DedupConfig(by_url=True, priority=("two",)))
    assert asked.removed == {"a": "c", "b": "c"}
    assert {row["reason"] for row in rows_of(asked.attributes).values()} == {None, "duplicate_url"}


def test_an_exact_copy_of_a_page_that_goes_by_its_address_is_judged_by_itself(tmp_path: Path) -> None:
    pages = (
        Page(prose(1), id="a", url="http://x.invalid/p"),
        Page(prose(2), id="b", url="http://x.invalid/p"),
        Page(prose(2), id="c", url="http://x.invalid/q"),
    )
    outcome = run_dedup(tmp_path, [PageSet("web", (pages,))], DedupConfig(by_url=True))
    assert outcome.removed == {"b": "a"}


def test_a_document_that_fails_the_filters_never_replaces_one_that_passes(tmp_path: Path) -> None:
    short, long = " ".join(prose(1).split()[:40]), " ".join(prose(1).split()[:48])
    rules = replace(EVERYTHING_PASSES.rules, words=WordRules(minimum_words=44, minimum_stop_words=0))
    sets = [
        PageSet("a", ((Page(short, id="0-short"),),)),
        PageSet("b", ((Page(long, id="9-long"), Page(short, id="1-short")),)),
    ]
    outcome = run_dedup(tmp_path, sets, DedupConfig(priority=("a",)), replace(EVERYTHING_PASSES, rules=rules))
    assert outcome.removed == {"0-short": "9-long", "1-short": "9-long"}


def test_signals_of_other_settings_are_refused(tmp_path: Path) -> None:
    pages = [write_pages(PageSet(name, ((Page(prose(1)),),))) for name in ("a", "b")]
    other = replace(EVERYTHING_PASSES, minhash=MinHashConfig(rows=9))
    signals = [annotate(pages[0], EVERYTHING_PASSES), annotate(pages[1], other)]
    within = [deduplicate(*pair) for pair in zip(pages, signals, strict=True)]
    with pytest.raises(StepError, match=r"signals of b were made with .*rows 9.* those of a with .*rows 8"):
        materialise(deduplicate_across(pages, signals, within), prefix=str(tmp_path))


def test_duplicates_of_other_settings_are_refused(tmp_path: Path) -> None:
    pages = write_pages(PageSet("a", ((Page(prose(1)),),)))
    signals = annotate(pages, EVERYTHING_PASSES)
    within = deduplicate(pages, signals, DedupConfig(containment=0.5))
    with pytest.raises(StepError, match=r"within a were found with .*containment 0.5.* joined with .*0.75"):
        materialise(deduplicate_across([pages], [signals], [within]), prefix=str(tmp_path))


def graph(names: Sequence[str]) -> Attributes:
    config = DedupConfig(priority=tuple(names))
    pages = [write_pages(PageSet(name, ((Page(prose(at), id=f"{name}0"),),))) for at, name in enumerate(names)]
    signals = [annotate(documents, EVERYTHING_PASSES) for documents in pages]
    within = [
        deduplicate(documents, judged, config.inside(name)).label(name)
        for documents, judged, name in zip(pages, signals, names, strict=True)
    ]
    return deduplicate_across(pages, signals, within, config)


def test_another_source_is_compared_within_itself_and_across_and_nothing_else_is_done_again(tmp_path: Path) -> None:
    materialise(graph(["a", "b"]), prefix=str(tmp_path))
    todo = make_plan([graph(["a", "b", "c"])], open_store(str(tmp_path))).to_do()
    assert sorted((step.call.name, step.call.label) for step in todo) == [
        ("documents/duplicates", None),
        ("documents/duplicates_within", "c"),
        ("documents/signals", None),
        ("test/pages", None),
    ]


def test_across_sources_nothing_is_compared_that_lies_in_one_source(tmp_path: Path) -> None:
    outcome = run_dedup(tmp_path, corpus(4, sources=1))
    report = outcome.attributes.read_json("report.json")
    assert outcome.removed
    assert (report["components"], report["buckets"]["shared"]) == (0, 0)


@pytest.mark.parametrize(
    "field", [{"containment": 0.0}, {"n_gram": 0}, {"priority": ("a", "a")}, {"documents_per_task": 0}]
)
def test_wrong_settings_are_refused(field: dict[str, Any]) -> None:
    with pytest.raises(ValueError) as error:
        DedupConfig(**field)
    assert f"DedupConfig.{next(iter(field))}" in str(error.value)
