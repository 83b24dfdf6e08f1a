"""Every reason of the signals can say which value broke which limit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from marin.data.consolidation.predicates import PREDICATES, explain
from marin.data.filtering.annotate import SIGNAL_SCHEMA
from marin.data.filtering.config import LanguageConfig, Rules, SentenceRules, WordRules
from marin.data.filtering.rules import REASONS, failed_rules
from tests.data.consolidation.test_decide import LIST, PROSE, row

TEXTS = (
    LIST,
    PROSE,
    "Too short.",
    "The same line.\n" * 30,
    "# " * 400,
    "word... " * 80,
    "a b c d " * 60,
    "- one\n" * 70,
)


def test_every_reason_has_a_predicate_over_a_column_that_is_measured() -> None:
    assert set(PREDICATES) == set(REASONS)
    for reason, predicate in PREDICATES.items():
        assert predicate.column in SIGNAL_SCHEMA.names, reason
        if predicate.limit:
            assert predicate.bound(Rules(), LanguageConfig()) is not None, reason


@pytest.mark.parametrize("text", TEXTS)
def test_the_value_and_the_limit_that_are_told_are_really_on_the_wrong_side(text: str) -> None:
    found = row(text, language="fr", language_score=0.5)
    rules, language = Rules(), LanguageConfig()
    for reason in failed_rules(found, rules, language):
        predicate = PREDICATES[reason]
        value, bound = found[predicate.column], predicate.bound(rules, language)
        holds = {
            "<": lambda a, b: a < b,
            ">": lambda a, b: a > b,
            "not in": lambda a, b: a not in b,
            "": lambda a, b: True,
        }
        assert holds[predicate.breaks](value, bound), reason
        assert explain(reason, found, rules, language).startswith(predicate.column)


def test_without_settings_only_the_value_is_told_and_of_an_unknown_reason_nothing() -> None:
    found = row("Too short.")
    assert explain("gopher_few_words", found, None, None) == "spoken_words 2"
    assert explain("gopher_few_words", found, Rules(), LanguageConfig()) == (
        "spoken_words 2 < 50 (rules.words.minimum_words)"
    )
    assert explain("duplicate_exact", found, Rules(), LanguageConfig()) == ""
    off = replace(Rules(), words=None)
    assert explain("gopher_few_words", found, off, LanguageConfig()) == "spoken_words 2"


def test_sentences_are_told_as_they_were_counted() -> None:
    found = row(LIST)
    rules = Rules(words=WordRules(), sentences=SentenceRules(terminal_punctuation=True))
    assert explain("c4_few_sentences", found, rules, LanguageConfig()).startswith("terminal_sentences 0 <")
