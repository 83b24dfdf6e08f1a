"""Decisions against datatrove's own filters, text by text."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from marin.data.filtering.config import LanguageConfig, Rules, SentenceRules
from marin.data.filtering.features import measure
from marin.data.filtering.rules import failed_rules
from marin.data.filtering.words import WordTable
from tests.data.dedup.texts import prose

CODE = """def area(width: int) -> int:
    # twice
    return width * 2

x = {'a': 1, 'b': [2, 3]}
print(x['a'] + area(4))
"""
DIALOGUE = """"Don't wait," said Mr. Hale, "they'll have left by 10.30 a.m."
"Who's they?"
"The crew, i.e. all of them..."
"""


def texts() -> Iterator[str]:
    """Texts of many kinds, around the thresholds and away from them."""
    draw = random.Random(0)
    for n in range(12):
        yield prose(n, sentences=draw.randint(1, 30))
        yield "\n".join(prose(n, 2 + n).split(". "))
        yield "\n".join(f"- {prose(k, 1)}" for k in range(n + 2))
        yield "\n\n".join(draw.choice([prose(1, 1), prose(2, 1), prose(k, 1)]) for k in range(12))
    yield CODE * 4 + prose(3, 6)
    yield DIALOGUE * 2 + prose(4, 4)
    yield " ".join(f"#{n} ... {n * 17}" for n in range(80))
    yield "Home\nNews\nContact\nAbout\nHelp\n" * 12
    yield prose(5, 12) + "\nLorem ipsum dolor sit amet."
    yield prose(6, 12) + "\nThis site uses cookies. Enable javascript to continue."
    yield "word " * 300
    yield "A short text."


@pytest.fixture(scope="module")
def filters() -> dict[str, tuple[Any, Rules]]:
    from datatrove.pipeline.filters import (
        C4QualityFilter,
        FineWebQualityFilter,
        GopherQualityFilter,
        GopherRepetitionFilter,
    )

    none = {"repetition": None, "words": None, "sentences": None, "lines": None}
    every = Rules(sentences=SentenceRules(curly_brackets=True))
    return {
        "repetition": (GopherRepetitionFilter(), Rules(**none | {"repetition": every.repetition})),
        "words": (GopherQualityFilter(), Rules(**none | {"words": every.words})),
        "sentences": (
            C4QualityFilter(filter_no_terminal_punct=False),
            Rules(**none | {"sentences": every.sentences}),
        ),
        "lines": (FineWebQualityFilter(), Rules(**none | {"lines": every.lines})),
    }


@pytest.mark.parametrize("family", ["repetition", "words", "sentences", "lines"])
def test_a_family_of_rules_decides_as_datatroves_filter_does(filters: dict[str, Any], family: str) -> None:
    from datatrove.data import Document

    reference, rules = filters[family]
    table = WordTable()
    kept = 0
    for text in texts():
        row = measure(text, table).columns | {"language": "en", "language_score": 1.0, "url_reason": None}
        theirs = reference.filter(Document(text=text, id="x")) is True
        assert (failed_rules(row, rules, LanguageConfig()) == []) == theirs, text[:200]
        kept += theirs
    assert 0 < kept < len(list(texts()))
