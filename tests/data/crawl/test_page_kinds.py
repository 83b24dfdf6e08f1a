"""The scorer on pages of many kinds and languages, each generated with its main text."""

import pytest

from marin.data.crawl.extraction.extractors import extractor
from tests.data.crawl.page_kinds import KINDS, VOCABULARIES, make_page, score

LOWEST = {"forum": (0.8, 0.9), "bare_article": (0.9, 0.95), "documentation": (0.9, 0.9), "terse": (0.85, 0.85)}
"""Least precision and recall of a kind where it is not .95: n-grams across what lies between two parts are errors."""


@pytest.mark.parametrize("language", VOCABULARIES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_main_text_comes_out_and_little_else(kind, language):
    page = make_page(kind, language)
    precision, recall = score(extractor("resiliparse", 512)(page.html), "\n".join(page.main), language)
    least_precision, least_recall = LOWEST.get(kind, (0.95, 0.95))
    assert precision >= least_precision
    assert recall >= least_recall


@pytest.mark.parametrize("kind", KINDS)
def test_the_scorer_is_as_good_as_the_reference_on_each_kind(kind):
    def f1(name):
        values = []
        for seed in ("a", "b"):
            page = make_page(kind, "en", seed)
            precision, recall = score(extractor(name, 512)(page.html), "\n".join(page.main), "en")
            values.append(2 * precision * recall / max(1e-9, precision + recall))
        return sum(values) / len(values)

    assert f1("resiliparse") >= f1("trafilatura") - 0.03
