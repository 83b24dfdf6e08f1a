"""Topics and quality from end to end, on a corpus whose answer is known."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from marin.data.cells.artifacts import QualityModel, TopicModel
from marin.data.cells.config import QualityConfig, SampleConfig, TopicConfig
from marin.data.documents.artifacts import Attributes, Documents
from marin.data.documents.attributes import read_attributes
from marin.data.documents.io import iterate_documents
from marin.data.documents.split import split_of
from marin.execution import StepError, materialise
from tests.data.cells.corpora import SHARE, STRICT, corpus, graded, text_on, written
from tests.data.pages import Page


def rows(prefix: Path, pages: list[Documents], grades: Attributes) -> dict[str, dict[str, Any]]:
    """Grades by URL."""
    made = materialise(grades, prefix=str(prefix))
    found: dict[str, dict[str, Any]] = {}
    for handle in pages:
        documents = materialise(handle, prefix=str(prefix))
        for shard in documents.shards:
            table = read_attributes(made, documents, shard).to_pylist()
            for document, row in zip(iterate_documents(documents, shards=[shard]), table, strict=True):
                assert document.id == row["id"] and row["reason"] is None
                found[document.url or ""] = row
    return found


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cells")


@pytest.fixture(scope="module")
def grades(prefix: Path) -> dict[str, dict[str, Any]]:
    pages = written(corpus())
    return rows(prefix, pages, graded(pages)[0])


def test_topics_are_the_fields_that_the_texts_are_about(grades: dict[str, dict[str, Any]]) -> None:
    seen = Counter((url.split("/")[3], row["topic"]) for url, row in grades.items())
    fields: dict[str, int] = {field: max((0, 1), key=lambda topic: seen[field, topic]) for field in ("sea", "kitchen")}
    assert set(fields.values()) == {0, 1}
    right = sum(seen[field, topic] for field, topic in fields.items())
    assert right / len(grades) > 0.97


def test_the_score_parts_what_is_like_the_reference_from_the_rest(grades: dict[str, dict[str, Any]]) -> None:
    good = [row["score"] for url, row in grades.items() if url.endswith("/good")]
    bad = [row["score"] for url, row in grades.items() if url.endswith("/bad")]
    assert min(good) > max(bad)
    assert all(0.0 <= row["score"] <= 1.0 for row in grades.values())
    bucket = {(url.rsplit("/", 1)[1], row["quality"]) for url, row in grades.items() if url.endswith("/bad")}
    assert bucket == {("bad", 0)}


def test_buckets_follow_the_score_and_halve_the_training_documents(grades: dict[str, dict[str, Any]]) -> None:
    low = [row["score"] for row in grades.values() if row["quality"] == 0]
    high = [row["score"] for row in grades.values() if row["quality"] == 1]
    assert max(low) <= min(high)
    training = [row for row in grades.values() if split_of(row["id"], SHARE) == "train"]
    assert abs(sum(row["quality"] == 1 for row in training) - len(training) / 2) <= 0.02 * len(training)


def test_the_words_of_a_topic_and_the_measures_of_the_classifier_are_told(prefix: Path) -> None:
    _, quality, topics = graded(written(corpus()))
    model: TopicModel = materialise(topics, prefix=str(prefix))
    words = [set(topic.words) for topic in model.topics]
    assert any(one & {"harbour", "tide", "anchor", "wave"} for one in words)
    assert any(one & {"flour", "oven", "salt", "soup"} for one in words)
    assert [topic.documents for topic in model.topics] == sorted((t.documents for t in model.topics), reverse=True)
    made: QualityModel = materialise(quality, prefix=str(prefix))
    # Half of the crawl is as good as the reference, and that half cannot be told from it.
    assert made.area is not None and 0.6 < made.area < 0.9
    report = json.loads(made.read("report.json"))
    assert report["positive"] == made.positive > 80 and report["negative"] == made.negative > 160
    assert report["calibration_error"] < 0.15
    assert report["signal_weights"]["terminal_lines"] > 0


@pytest.mark.parametrize("shards", [3])
def test_grades_are_the_same_for_every_sharding_and_order(
    grades: dict[str, dict[str, Any]], tmp_path: Path, shards: int
) -> None:
    sources = {name: pages[::-1] for name, pages in corpus().items()}
    pages = written(sources, shards)
    assert rows(tmp_path, pages, graded(pages)[0]) == grades


def test_with_buckets_for_each_topic_every_cell_has_documents(tmp_path: Path) -> None:
    # All texts on the sea are good, all on the kitchen bad: quantiles of the corpus would leave two cells empty.
    pages = [Page(text_on("sea", n), url=f"http://web.invalid/sea/{n}") for n in range(60)]
    pages += [Page(text_on("kitchen", n, careful=False), url=f"http://web.invalid/kitchen/{n}") for n in range(60)]
    reference = [Page(text_on("sea", 500 + n), url=f"http://reference.invalid/{n}") for n in range(40)]
    made = written({"web": pages, "reference": reference})
    found = {}
    for scope in ("corpus", "topic"):
        config = QualityConfig(positive=("reference",), buckets=2, scope=scope)
        grades = rows(tmp_path, made, graded(made, quality=config)[0])
        found[scope] = {(row["topic"], row["quality"]) for row in grades.values()}
    assert len(found["corpus"]) < 4
    assert len(found["topic"]) == 4


def test_without_named_sources_the_filters_decide_what_is_positive(tmp_path: Path) -> None:
    pages = written({"web": corpus(30)["web"]})
    grades, quality, _ = graded(pages, quality=QualityConfig(buckets=2), signals=STRICT)
    found = rows(tmp_path, pages, grades)
    good = [row["score"] for url, row in found.items() if url.endswith("/good")]
    bad = [row["score"] for url, row in found.items() if url.endswith("/bad")]
    assert min(good) > max(bad)
    assert materialise(quality, prefix=str(tmp_path)).area == 1.0


def test_a_sample_of_each_source_stands_for_all_of_it(tmp_path: Path) -> None:
    pages = written(corpus())
    grades, quality, topics = graded(pages, SampleConfig(documents_per_source=60))
    found = rows(tmp_path, pages, grades)
    made = materialise(quality, prefix=str(tmp_path))
    assert made.positive + made.negative < 140
    training = [row for row in found.values() if split_of(row["id"], SHARE) == "train"]
    assert 0.3 < sum(row["quality"] == 1 for row in training) / len(training) < 0.7
    assert sum(topic.documents for topic in materialise(topics, prefix=str(tmp_path)).topics) < 140


def test_every_document_is_accounted_for_at_each_step(prefix: Path, grades: dict[str, dict[str, Any]]) -> None:
    assert grades
    for name in ("cells.sample", "cells.topics", "cells.quality", "documents.cells"):
        records = list(prefix.glob(f"_steps/{name}-*.json"))
        assert records
        for record in records:
            for flow in json.loads(record.read_text())["flows"]:
                assert flow["read"] == flow["kept"] + sum(flow["dropped"].values()) > 0


def test_one_bucket_needs_no_second_set(tmp_path: Path) -> None:
    pages = written({"web": [page for page in corpus(20)["web"] if page.url.endswith("good")]})
    grades, quality, _ = graded(pages, quality=QualityConfig(buckets=1))
    assert {row["quality"] for row in rows(tmp_path, pages, grades).values()} == {0}
    assert materialise(quality, prefix=str(tmp_path)).area is None


def test_sets_that_are_too_small_and_topics_that_are_too_many_are_named(tmp_path: Path) -> None:
    pages = written({"web": [page for page in corpus(20)["web"] if page.url.endswith("good")]})
    with pytest.raises(StepError, match=r"negative set .* has 0 documents.*quality\.negative"):
        materialise(graded(pages, quality=QualityConfig(buckets=2))[0], prefix=str(tmp_path))
    with pytest.raises(StepError, match=r"topics\.clusters = 400"):
        materialise(graded(pages, topics=TopicConfig(clusters=400))[0], prefix=str(tmp_path))
    with pytest.raises(StepError, match=r"quality\.positive names 'books'"):
        materialise(graded(pages, quality=QualityConfig(positive=("books",), buckets=2))[0], prefix=str(tmp_path))


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: QualityConfig(buckets=0), "buckets"),
        (lambda: QualityConfig(scope="page"), "scope"),  # type: ignore[arg-type]
        (lambda: QualityConfig(regularisation=0.0), "regularisation"),
        (lambda: QualityConfig(positive=("a",), negative=("a",)), "positive"),
        (lambda: QualityConfig(negative=("a",)), "negative"),
        (lambda: TopicConfig(clusters=0), "clusters"),
        (lambda: SampleConfig(characters=0), "characters"),
    ],
)
def test_wrong_settings_are_refused_by_name(make: Any, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        make()
