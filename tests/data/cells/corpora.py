"""Small corpora with topics and qualities that are known, and the steps up to grades."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from marin.data.cells.artifacts import QualityModel, TopicModel
from marin.data.cells.config import QualityConfig, SampleConfig, TopicConfig
from marin.data.cells.steps import grade, sample_corpus, train_quality, train_topics
from marin.data.documents.artifacts import Attributes, Documents
from marin.data.evalsets.config import EvalSetConfig
from marin.data.evalsets.steps import build_evalset
from marin.data.filtering.config import (
    LanguageConfig,
    LineRules,
    Rules,
    SignalConfig,
    UrlConfig,
    WordRules,
)
from marin.data.filtering.steps import annotate
from tests.data.dedup.runs import duplicates_of
from tests.data.pages import Page, PageSet, write_pages

SHARE = 0.2
STRICT = SignalConfig(
    rules=Rules(repetition=None, words=WordRules(minimum_stop_words=1), lines=LineRules(duplicate_line_characters=0.5)),
    url=UrlConfig(integrated_lists=False),
    language=LanguageConfig(keep=(), minimum_score=0.0),
)
"""Drops the careless texts, whose lines do not end."""
SIGNALS = replace(STRICT, rules=Rules(repetition=None, words=WordRules(minimum_stop_words=1), lines=None))
"""Lets all texts pass."""

_SEA = "harbour sail mast tide anchor gull rope captain deck storm wave keel rudder fleet lighthouse net"
_KITCHEN = "flour oven butter recipe spoon onion garlic simmer pan salt pepper dough roast soup plate knife"
_GLUE_WORDS = "the of and to in that for it was with"
_FIELDS = {"sea": tuple(_SEA.split()), "kitchen": tuple(_KITCHEN.split())}
_GLUE = tuple(_GLUE_WORDS.split())


def text_on(field: str, number: int, *, careful: bool = True) -> str:
    """A text on one field. A careful one has whole sentences, the other shouts half lines."""
    generator = random.Random(f"{field}/{number}/{careful}")
    lines = []
    for _ in range(14):
        words = [
            generator.choice(_FIELDS[field] if generator.random() < 0.5 else _GLUE)
            for _ in range(generator.randint(9, 14))
        ]
        if careful:
            lines.append(" ".join(words).capitalize() + ".")
        else:
            lines.append(" ".join([*words[:6], "click", "subscribe", "deal", "free", "now"]))
    return "\n".join(lines)


def corpus(count: int = 60) -> dict[str, list[Page]]:
    """A crawl of both fields in both qualities, and a reference source of careful texts."""
    web, reference = [], []
    for number in range(count):
        for field in _FIELDS:
            web.append(Page(text_on(field, number), url=f"http://web.invalid/{field}/{number}/good"))
            web.append(Page(text_on(field, number, careful=False), url=f"http://web.invalid/{field}/{number}/bad"))
            reference.append(Page(text_on(field, 1000 + number), url=f"http://reference.invalid/{field}/{number}"))
    return {"web": web, "reference": reference}


def written(sources: dict[str, list[Page]], shards: int = 1) -> list[Documents]:
    """Each source as documents in so many shards."""
    return [
        write_pages(PageSet(name, tuple(tuple(pages[start::shards]) for start in range(shards))))
        for name, pages in sources.items()
    ]


def graded(
    pages: Sequence[Documents],
    sample: SampleConfig = SampleConfig(),
    topics: TopicConfig = TopicConfig(clusters=2, dimensions=8),
    quality: QualityConfig = QualityConfig(positive=("reference",), buckets=2),
    signals: SignalConfig = SIGNALS,
) -> tuple[Attributes, QualityModel, TopicModel]:
    """The grades of documents, and what they were graded with; runs nothing."""
    judged = [annotate(documents, signals) for documents in pages]
    duplicates = duplicates_of(pages, judged)
    evalset = build_evalset(
        pages, judged, duplicates, EvalSetConfig(validation_share=SHARE, choice_items=0, rolling_documents=0)
    )
    taken = sample_corpus(pages, judged, duplicates, evalset, sample)
    clusters = train_topics(taken, topics)
    classifier = train_quality(taken, clusters, quality)
    return grade(pages, judged, classifier, clusters), classifier, clusters
