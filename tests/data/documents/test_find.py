"""`marin documents find` on a small graph from a crawl's pages to a training run."""

from __future__ import annotations

import re

import pytest

from marin.checkpoint.artifacts import Checkpoint
from marin.cli.main import main
from marin.data.cells.config import QualityConfig, TopicConfig
from marin.data.cells.steps import grade, sample_corpus, train_quality, train_topics
from marin.data.consolidation.config import Policy, TakedownConfig, TakedownEntry
from marin.data.consolidation.steps import consolidate
from marin.data.dedup.steps import decontaminate
from marin.data.documents.io import iterate_documents
from marin.data.evalsets.config import EvalSetConfig
from marin.data.evalsets.steps import build_evalset
from marin.data.filtering.config import Rules, SignalConfig, UrlConfig
from marin.data.filtering.steps import annotate
from marin.execution import materialise, step
from marin.model.config import ModelConfig
from marin.tokens.mixture.artifacts import Mixture
from marin.tokens.mixture.steps import build_mixture
from marin.tokens.shards.config import Selection
from marin.tokens.shards.steps import tokenize
from marin.tokens.tokenizer.steps import train_tokenizer
from tests.data.dedup.runs import duplicates_of
from tests.data.dedup.texts import prose
from tests.data.pages import Page, PageSet, write_pages
from tests.tokens.building import SMALL_TOKENIZER

SHARE = 0.25
PAGES = (
    *(Page(prose(n), url=f"http://web.invalid/{n}") for n in range(24)),
    Page(prose(3), url="http://web.invalid/copy"),
    Page("Too short.", url="http://web.invalid/short"),
    Page(prose(40), url="http://web.invalid/private/1"),
)


@step("test/training", version="1")
def trained(mixture: Mixture) -> Checkpoint:
    """A training run in name only: it is found by its record."""
    return Checkpoint(
        model=ModelConfig.rung("d768"),
        step=7,
        tokens=mixture.tokens,
        skipped_steps=0,
        training_loss=1.0,
        validation_loss=1.0,
        unigram_loss=1.0,
        validation_losses={},
        unigram_losses={},
        validation_tokens={},
    )


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = str(tmp_path_factory.mktemp("p"))
    pages = write_pages(PageSet("web", (PAGES[:10], PAGES[10:])))
    signals = annotate(pages, SignalConfig(rules=Rules(repetition=None), url=UrlConfig(integrated_lists=False)))
    duplicates = duplicates_of([pages], [signals])
    evalset = build_evalset(
        [pages], [signals], duplicates, EvalSetConfig(validation_share=SHARE, choice_items=4, rolling_documents=2)
    )
    overlap = decontaminate([pages], [evalset])
    policy = Policy(takedown=TakedownConfig(entries=(TakedownEntry("https://web.invalid/private/*", "asked for"),)))
    sample = sample_corpus([pages], [signals], duplicates, evalset)
    topics = train_topics(sample, TopicConfig(clusters=2, dimensions=8))
    cells = grade([pages], [signals], train_quality(sample, topics, QualityConfig(buckets=1)), topics)
    clean = consolidate([pages], [signals], duplicates, overlap, evalset, cells, config=policy)
    tokenizer = train_tokenizer(clean, SMALL_TOKENIZER)
    mixture = build_mixture({f"c{topic:02d}": tokenize(clean, tokenizer, Selection(topic=topic)) for topic in (0, 1)})
    materialise(trained(mixture).label("small"), place)
    return place


def find(prefix: str, what: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stop:
        main(["documents", "find", what, "--prefix", prefix])
    assert stop.value.code == 0
    return capsys.readouterr().out


def documents(prefix: str) -> dict[str, str]:
    """Ids by URL of what was kept for training."""
    from marin.data.consolidation.prefix_records import PrefixRecords
    from marin.data.documents.artifacts import Documents
    from marin.storage import open_store

    records = PrefixRecords(open_store(prefix))
    (clean,) = [
        one for one in records.of_type("marin.data.documents.artifacts:Documents") if one.name.endswith("clean")
    ]
    found = records.artifact(clean, Documents)
    return {one.url or "": one.id for one in iterate_documents(found, shards=found.select(split="train"))}


def test_a_kept_document_is_followed_from_its_page_to_the_training_run(
    prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url, document_id = next(iter(documents(prefix).items()))
    by_url = find(prefix, url.replace("http:", "https:"), capsys)
    assert by_url == find(prefix, document_id, capsys)
    assert f"document {document_id}" in by_url
    assert "made by     test/pages-" in by_url
    assert "spoken_words" in by_url
    assert "signals     passes" in by_url and "duplicates  passes" in by_url
    assert "cells       passes" in by_url and "similarity" in by_url
    assert "kept        train/web/c0" in by_url
    assert by_url.count("tokens      00000.bin, document ") == 1
    assert "mixture     tokens/mixture-" in by_url
    assert "training    test/training-" in by_url and "(small)" in by_url and "7 steps" in by_url


def test_a_dropped_document_tells_the_predicate_with_its_value_and_limit(
    prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = find(prefix, "http://web.invalid/short", capsys)
    assert "gopher_few_words" in shown
    (line,) = [line for line in shown.splitlines() if line.startswith("  dropped")]
    assert re.search(r": \w+ [0-9.]+ [<>] [0-9.]+ \((rules|language)\.", line)
    assert "training" not in shown


def test_a_copy_names_the_document_that_stands_in_for_it(prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = {url: find(prefix, url, capsys) for url in ("http://web.invalid/3", "http://web.invalid/copy")}
    ids = {url: text.split()[1] for url, text in shown.items()}
    (copy,) = [url for url, text in shown.items() if "dropped" in text]
    (original,) = set(ids) - {copy}
    assert f"dropped     duplicate_exact: {ids[original]}" in shown[copy]
    assert re.search(rf"    stays in its place +{ids[original]} web {original}\n", shown[copy])
    assert re.search(r"    containment +1\n", shown[copy])
    assert re.search(r"    stays in the place of +1 removed \(duplicate_exact 1\)\n", shown[original])
    assert "stays in" not in find(prefix, "http://web.invalid/5", capsys)


def test_a_document_that_was_taken_down_tells_the_reason(prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "dropped     takedown: asked for" in find(prefix, "http://web.invalid/private/1", capsys)


def test_what_is_not_there_is_one_line_and_exit_code_one(prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    for what in ("http://web.invalid/none", "f" * 32):
        with pytest.raises(SystemExit) as stop:
            main(["documents", "find", what, "--prefix", prefix])
        assert stop.value.code == 1
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert what in line
