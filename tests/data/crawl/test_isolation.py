"""Extraction in a child process."""

import time

import pytest

from marin.data.crawl.extraction.isolation import IsolatedExtractor
from marin.execution import StepError


def _isolated(page_seconds=1.0):
    return IsolatedExtractor(
        "resiliparse", page_seconds=page_seconds, max_depth=512, worker="tests.data.crawl.stubborn_worker"
    )


def test_a_page_that_hangs_in_native_code_costs_itself_only():
    started = time.monotonic()
    with _isolated() as isolated:
        results = list(isolated.extract(["one", "hang", "two", "three"]))
    assert [result.failure for result in results] == [None, "timeout", None, None]
    assert [result.text for result in results if result.failure is None] == ["ONE", "TWO", "THREE"]
    assert time.monotonic() - started < 30


def test_a_page_that_kills_its_process_or_raises_costs_itself_only():
    with _isolated() as isolated:
        results = list(isolated.extract(["die", "raise", "memory", "one", "die", "two"]))
        again = list(isolated.extract(["three"]))
    failures = ["extractor_crashed", "extractor_failed", "extractor_failed", None, "extractor_crashed", None]
    assert [result.failure for result in results] == failures
    assert [result.text for result in again] == ["THREE"]


def test_a_worker_that_does_not_start_is_an_error_not_a_dropped_page():
    isolated = IsolatedExtractor("no such extractor", page_seconds=1.0, max_depth=512)
    with isolated, pytest.raises(StepError, match="did not start"):
        list(isolated.extract(["page"]))


def test_large_batches_do_not_block():
    pages = ["x" * 100_000] * 64
    with _isolated(page_seconds=10.0) as isolated:
        assert sum(len(result.text) for result in isolated.extract(pages)) == 6_400_000


def test_a_worker_that_has_grown_is_replaced_between_batches():
    with IsolatedExtractor(
        "resiliparse", page_seconds=10.0, max_depth=512, worker="tests.data.crawl.stubborn_worker", recycled_bytes=1
    ) as grown:
        assert [[one.text for one in grown.extract([word])] for word in ("a", "b", "c")] == [["A"], ["B"], ["C"]]
        assert grown.started == 3
    with _isolated(10.0) as kept:
        assert [[one.text for one in kept.extract([word])] for word in ("a", "b", "c")] == [["A"], ["B"], ["C"]]
        assert kept.started == 1


def test_a_page_that_the_parser_itself_chokes_on_ends_in_time():
    """Formatting elements that are never closed are rebuilt in each block: the tree outgrows the page many times."""
    page = "<b><i><u><s><em><a>" * 500 + "<p>x<div>" * 2_000_000
    started = time.monotonic()
    with IsolatedExtractor("resiliparse", page_seconds=2.0, max_depth=512) as isolated:
        first, second = isolated.extract([page, "<p>" + "a page after it, of some length and kept as it is. " * 3])
    assert first.failure in ("timeout", "extractor_failed", "extractor_crashed")
    assert second.text.startswith("a page after it")
    assert time.monotonic() - started < 30
