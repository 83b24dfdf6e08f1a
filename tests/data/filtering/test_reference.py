"""The reference mode decides as a FineWeb pipeline of datatrove does, and the fast mode nearly always the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from marin.data.filtering.agreement import compare
from marin.data.filtering.annotate import signals_of
from marin.data.filtering.artifacts import AGREEMENT_FILE
from marin.data.filtering.config import LanguageConfig, Rules, SentenceRules, SignalConfig, UrlConfig
from marin.data.filtering.reference import ReferenceJudge
from marin.data.filtering.rules import REASONS
from marin.data.filtering.steps import annotate, compare_judges
from marin.data.filtering.urls import UrlJudge, blocked_urls
from marin.execution import materialise
from tests.data.dedup.texts import prose
from tests.data.filtering.test_agreement import texts
from tests.data.pages import Page, PageSet, write_pages

RULES = Rules(sentences=SentenceRules(curly_brackets=True))


def kept_by_datatrove(text: str) -> bool:
    """Whether a pipeline of datatrove's filters, written out, keeps a text."""
    from datatrove.data import Document
    from datatrove.pipeline.filters import (
        C4QualityFilter,
        FineWebQualityFilter,
        GopherQualityFilter,
        GopherRepetitionFilter,
    )

    pipeline: list[Any] = [
        GopherRepetitionFilter(),
        GopherQualityFilter(),
        C4QualityFilter(filter_no_terminal_punct=False),
        FineWebQualityFilter(),
    ]
    documents: Any = iter([Document(text=text, id="x")])
    for block in pipeline:
        documents = block.run(documents)
    return bool(list(documents))


def test_the_reference_keeps_what_a_pipeline_of_datatrove_keeps() -> None:
    judge = ReferenceJudge(RULES)
    kept = 0
    for text in texts():
        reasons = judge.reasons(text)
        assert (reasons == []) == kept_by_datatrove(text), text[:200]
        assert all(reason in REASONS for reason in reasons)
        kept += not reasons
    assert 0 < kept < len(list(texts()))


def test_the_fast_judge_decides_as_the_reference_on_nearly_every_text() -> None:
    found = compare([str(number) for number in range(len(list(texts())))], list(texts()), RULES)
    assert found.documents == len(list(texts()))
    assert found.kept + found.dropped >= 0.98 * found.documents
    assert found.kept
    assert found.dropped


@pytest.mark.parametrize(
    "text", ["", "  \n ", "IS_ALPHA", "IS_ALPHA " * 80, "\u200b", "... !!!", "𝕏" * 300, "a" * 5000]
)
def test_odd_texts_are_judged_without_an_error(text: str) -> None:
    lenient = replace(
        Rules(),
        words=replace(Rules().words, minimum_words=0),
        sentences=SentenceRules(minimum_sentences=0),  # type: ignore[type-var]
    )
    for rules in (RULES, lenient):
        assert all(reason in REASONS for reason in ReferenceJudge(rules).reasons(text))


def test_the_mode_changes_the_reasons_and_nothing_else() -> None:
    fast = SignalConfig(url=UrlConfig(integrated_lists=False, domains=("bad.org",)))
    urls = UrlJudge(blocked_urls(["http://bad.org/"], fast.url))
    for text in (prose(1, 12), "word " * 300, "short"):
        one = signals_of(text, "http://bad.org/", fast, urls)
        other = signals_of(text, "http://bad.org/", replace(fast, mode="reference"), urls)
        changed = {name for name in one if one[name] != other[name]}
        assert changed <= {"reasons", "reason"}
        assert other["reason"] == one["reason"] == "url_domain"
        assert other["reasons"] == sorted(other["reasons"], key=REASONS.index)


def test_a_document_of_another_language_keeps_that_reason_in_the_reference_mode() -> None:
    config = SignalConfig(
        mode="reference", url=UrlConfig(integrated_lists=False), language=LanguageConfig(keep=("de",))
    )
    row = signals_of(prose(2, 20), None, config, UrlJudge(blocked_urls((), config.url)))
    assert row["reason"] == "language_other"


def test_the_report_counts_every_document_and_shows_the_differences(tmp_path: Path) -> None:
    pages = write_pages(
        PageSet("web", (tuple(Page(prose(seed, 2 + seed)) for seed in range(20)), (Page("word " * 300), Page("short"))))
    )
    report = materialise(compare_judges(pages, SignalConfig()), prefix=str(tmp_path))
    assert report.documents == 22
    assert report.equal == 22 - report.only_fast_keeps - report.only_reference_keeps
    assert report.rate >= 0.9
    with report.open(AGREEMENT_FILE) as stream:
        kept = json.load(stream)
    assert kept["both_keep"] + kept["both_drop"] == report.equal
    assert kept["both_keep"] > 0


def test_the_comparison_tells_the_directions_apart() -> None:
    from marin.data.filtering.agreement import Comparison

    found = Comparison()
    found.add("a", ["gopher_hashes"], [])
    found.add("b", [], ["c4_few_sentences"])
    found.add("c", [], [])
    found.add("d", ["empty"], ["gopher_few_words"])
    assert (found.only_fast_keeps, found.only_reference_keeps, found.kept, found.dropped) == (1, 1, 1, 1)
    assert found.to_json()["differences"] == [
        {"reference": "gopher_hashes", "fast": "kept", "documents": 1},
        {"reference": "kept", "fast": "c4_few_sentences", "documents": 1},
    ]


def test_an_unknown_mode_is_named() -> None:
    with pytest.raises(ValueError, match="mode is 'slow'"):
        SignalConfig(mode="slow")  # type: ignore[arg-type]


def test_annotate_in_reference_mode_writes_the_columns_of_the_fast_mode(tmp_path: Path) -> None:
    pages = write_pages(PageSet("web", ((Page(prose(3, 12)), Page("short")),)))
    config = SignalConfig(url=UrlConfig(integrated_lists=False))
    tables = []
    for mode in ("fast", "reference"):
        made = materialise(annotate(pages, replace(config, mode=mode)), prefix=str(tmp_path))
        tables.append(pq.read_table(made.local(made.shards[0].name)))
    fast, reference = tables
    assert reference.column("reason").to_pylist() == [None, "gopher_few_words"]
    for name in set(fast.column_names) - {"reason", "reasons"}:
        assert fast.column(name) == reference.column(name), name
