"""The half of a graph that knows no tokenizer: from sources to clean documents, for every experiment on them."""

from __future__ import annotations

from dataclasses import dataclass

from marin.data.cells.steps import grade, sample_corpus, train_quality, train_topics
from marin.data.consolidation.steps import consolidate
from marin.data.crawl.steps import extract_pages, fetch_crawl
from marin.data.dedup.steps import decontaminate, deduplicate, deduplicate_across, repeated_lines, repeated_spans
from marin.data.documents.artifacts import Attributes, Documents
from marin.data.evalsets.artifacts import EvalSet
from marin.data.evalsets.steps import build_evalset, load_evalset
from marin.data.filtering.steps import annotate
from marin.data.sources.steps import read_source
from marin.evaluation.steps import load_task
from marin.recipes.scale import Scale


@dataclass(frozen=True)
class Corpus:
    """What later stages take of the data."""

    clean: Documents
    """Documents to train on and held-out ones, each with its cell."""
    evalset: EvalSet
    overlap: Attributes
    """Which documents hold items of evaluation sets."""


def build_corpus(scale: Scale) -> Corpus:
    """The graph from the sources to clean documents, one line a stage; runs nothing."""
    crawls = tuple(fetch_crawl(crawl).label(crawl.source) for crawl in scale.crawls)
    pages = (
        *(extract_pages(crawl, scale.extract).label(at.source) for crawl, at in zip(crawls, scale.crawls, strict=True)),
        *(read_source(text).label(text.source) for text in scale.texts),
    )
    signals = tuple(annotate(page, scale.signals).label(name) for page, name in zip(pages, scale.sources, strict=True))
    within = tuple(
        deduplicate(page, signal, scale.dedup.inside(name)).label(name)
        for page, signal, name in zip(pages, signals, scale.sources, strict=True)
    )
    unique = deduplicate_across(pages, signals, within, scale.dedup)
    evalset = build_evalset(pages, signals, unique, scale.evalset)
    public = tuple(load_evalset(files).label(files.name) for files in scale.evalfiles)
    further = tuple(load_task(task).label(task.name) for task in scale.evaluation.further)
    overlap = decontaminate(pages, (evalset, *public, *further), scale.decontamination)
    sample = sample_corpus(pages, signals, unique, evalset, scale.sample)
    topics = train_topics(sample, scale.topics)
    quality = train_quality(sample, topics, scale.quality)
    grades = grade(pages, signals, quality, topics)
    lines = repeated_lines(pages, scale.lines, unique, scale.dedup)
    spans = (repeated_spans(pages, unique, scale.spans, signals, scale.dedup),) if scale.spans else ()
    cuts = (lines, *spans)
    return Corpus(consolidate(pages, signals, unique, overlap, evalset, grades, cuts, scale.policy), evalset, overlap)
