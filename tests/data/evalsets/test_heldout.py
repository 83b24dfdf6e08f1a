"""Evaluation sets from held-out documents."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from marin.data.documents.split import split_of
from marin.data.evalsets.artifacts import CHOICE_FILE, ITEMS_FILE, ROLLING_FILE, EvalSet
from marin.data.evalsets.config import EvalSetConfig
from marin.data.evalsets.continuations import Continuation, choice_items, continuations, sentences
from marin.data.evalsets.steps import build_evalset
from marin.data.filtering.config import Rules, SignalConfig, UrlConfig
from marin.data.filtering.personal import PersonalData
from marin.data.filtering.steps import annotate
from marin.execution import StepError, materialise
from tests.data.dedup.runs import duplicates_of
from tests.data.dedup.texts import prose
from tests.data.pages import Page, PageSet, write_pages

CONFIG = EvalSetConfig(validation_share=0.3, choice_items=30, rolling_documents=5, rolling_characters=500)
SIGNALS = SignalConfig(rules=Rules(repetition=None), url=UrlConfig(integrated_lists=False))


def pages(source: str, first: int, count: int) -> list[Page]:
    found = [Page(prose(first + n), url=f"http://{source}.invalid/{n}") for n in range(count)]
    return [
        *found,
        Page("Dropped by filters.", url=f"http://{source}.invalid/bad"),
        Page(prose(first), url="http://copy"),
    ]


def build(prefix: Path, shards: int, config: EvalSetConfig = CONFIG) -> EvalSet:
    sets = [PageSet("a", _deal(pages("a", 0, 30), shards)), PageSet("b", _deal(pages("b", 100, 30), shards))]
    documents = [write_pages(one) for one in sets]
    signals = [annotate(one, SIGNALS) for one in documents]
    return materialise(build_evalset(documents, signals, duplicates_of(documents, signals), config), prefix=str(prefix))


def _deal(found: list[Page], shards: int) -> tuple[tuple[Page, ...], ...]:
    return tuple(tuple(found[start::shards]) for start in range(shards))


@pytest.fixture(scope="module")
def evalset(tmp_path_factory: pytest.TempPathFactory) -> EvalSet:
    return build(tmp_path_factory.mktemp("evalset"), 1)


def test_items_come_from_held_out_documents_of_every_source(evalset: EvalSet) -> None:
    rows = [*evalset.lines(CHOICE_FILE), *evalset.lines(ROLLING_FILE)]
    assert rows
    assert all(split_of(row["document_id"], CONFIG.validation_share) == "validation" for row in rows)
    assert evalset.sources == ("a", "b")
    assert 20 < evalset.choice_items <= 30
    assert evalset.rolling_documents == 5
    assert evalset.items == evalset.choice_items + 5 == len(list(evalset.lines(ITEMS_FILE)))


def test_the_true_choice_follows_the_context_and_the_others_come_from_elsewhere(evalset: EvalSet) -> None:
    texts = {n: prose(n) for n in [*range(30), *range(100, 130)]}
    for row in evalset.lines(CHOICE_FILE):
        (home,) = [text for text in texts.values() if row["context"] in text]
        assert f"{row['context']} {row['choices'][row['answer']]}" in home
        assert len(set(row["choices"])) == 4
        wrong = [choice for place, choice in enumerate(row["choices"]) if place != row["answer"]]
        assert all(any(choice in text for text in texts.values()) for choice in wrong)
        assert not any(choice in home for choice in wrong)


@pytest.mark.parametrize("shards", [2, 7])
def test_the_set_is_the_same_for_every_sharding(tmp_path: Path, evalset: EvalSet, shards: int) -> None:
    other = build(tmp_path, shards)
    for name in (CHOICE_FILE, ROLLING_FILE, ITEMS_FILE):
        assert evalset.read(name) == other.read(name)


def test_personal_data_is_treated_as_in_the_documents_that_train(tmp_path: Path) -> None:
    pages = write_pages(
        PageSet("a", (tuple(Page(f"Call 212-664-7665, write to n{n}@mail.org. {prose(n)}") for n in range(40)),))
    )
    signals = annotate(pages, SIGNALS)
    duplicates = duplicates_of([pages], [signals])
    config = replace(CONFIG, choice_items=0)
    found = {}
    for name, personal in (("default", config.personal), ("other", PersonalData(email="keep", phone="mask"))):
        made = build_evalset([pages], [signals], duplicates, replace(config, personal=personal))
        evalset = materialise(made, prefix=str(tmp_path))
        found[name] = [row["text"][:60] for row in evalset.lines(ROLLING_FILE)]
    assert all(text.startswith("Call 212-664-7665, write to email@example.com. ") for text in found["default"])
    assert all(text.startswith("Call 555-0100, write to n") and "@mail.org. " in text for text in found["other"])
    assert len(found["default"]) == len(found["other"]) == CONFIG.rolling_documents


def test_neither_place_nor_length_tells_the_answer() -> None:
    pool = [Continuation(f"d{n * 7919 % 1500}", "web", "context", "x" * (40 + n), 0) for n in range(1500)]
    items = choice_items(pool, EvalSetConfig(choice_items=1200))
    places = Counter(row["answer"] for row in items)
    ranks = Counter(sorted(row["choices"], key=len).index(row["choices"][row["answer"]]) for row in items)
    spread = [max(map(len, row["choices"])) - min(map(len, row["choices"])) for row in items]
    for counts in (places, ranks):
        assert all(0.2 < counts[place] / len(items) < 0.3 for place in range(4))
    assert sorted(spread)[len(spread) // 2] < 10


def test_sentences_cover_the_text_and_end_where_sentences_do() -> None:
    text = 'One. Two? "Three!" he said.\nA line without end\n\n第四句。第五句。 v1.2 stays whole.'
    spans = list(sentences(text))
    assert "".join(text[begin:end] for begin, end in spans) == text
    assert [text[begin:end].strip() for begin, end in spans if text[begin:end].strip()] == [
        "One.",
        "Two?",
        '"Three!"',
        "he said.",
        "A line without end",
        "第四句。",
        "第五句。",
        "v1.2 stays whole.",
    ]


def test_a_context_has_its_size_and_begins_with_a_word() -> None:
    config = EvalSetConfig(context_characters=100, items_per_document=50)
    found = continuations("d", "web", prose(1), config)
    assert found
    for item in found:
        assert 25 <= len(item.context) <= 100
        assert item.context.split()[0] in prose(1).split()
        assert item == next(one for one in continuations("d", "web", prose(1), config) if one.place == item.place)


def test_too_few_held_out_documents_are_an_error_with_a_way_out(tmp_path: Path) -> None:
    documents = [write_pages(PageSet("a", ((Page(prose(1)),),)))]
    signals = [annotate(one, SIGNALS) for one in documents]
    with pytest.raises(StepError) as error:
        materialise(build_evalset(documents, signals, duplicates_of(documents, signals)), prefix=str(tmp_path))
    assert "validation_share" in str(error.value)


def test_cut_texts_end_at_a_break(evalset: EvalSet) -> None:
    for row in evalset.lines(ROLLING_FILE):
        assert 250 < len(row["text"]) <= 500


def test_contexts_and_items_of_large_sets_are_made_in_linear_time() -> None:
    text = "This is a plain sentence that goes on for a while. " * 60_000
    assert len(continuations("d", "web", text, EvalSetConfig())) == EvalSetConfig().items_per_document
    pool = [Continuation(f"{n:05d}", "web", "context", f"{'word ' * (10 + n % 7)}{n}.", 0) for n in range(40_000)]
    made = choice_items(pool, EvalSetConfig(choice_items=20))
    assert made == choice_items(pool, EvalSetConfig(choice_items=40))[:20]


@pytest.mark.parametrize("shards", [1, 3])
def test_a_pool_is_bounded_for_each_source_whatever_the_shards(tmp_path: Path, shards: int) -> None:
    config = replace(CONFIG, pool_documents=4, items_per_document=1, choices=2)
    made = [build(tmp_path / str(n), n, config) for n in (shards, 5)]
    rows = list(made[0].lines(CHOICE_FILE))
    used = {row["source"]: {one["document_id"] for one in rows if one["source"] == row["source"]} for row in rows}
    assert set(used) == {"a", "b"}
    assert all(0 < len(documents) <= 4 for documents in used.values())
    assert made[0].rolling_documents == 5
    for name in (CHOICE_FILE, ROLLING_FILE, ITEMS_FILE):
        assert made[0].read(name) == made[1].read(name)
