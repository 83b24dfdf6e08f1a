"""The policy as a pure function."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from marin.data.consolidation.config import LicenceConfig, Policy
from marin.data.consolidation.decide import DROP_ORDER, Facts, decide
from marin.data.filtering.config import LanguageConfig, Rules, WordRules
from marin.data.filtering.features import measure
from marin.data.filtering.rules import failed_rules
from marin.data.filtering.words import WordTable

TABLE = WordTable()
PROSE = (
    "The ferry crew waited for the light because the river had risen over the stones. Nobody believed that the bridge "
    "would hold, and yet it carried three carts. When the second bell rang, the pilot closed his book. They were tied "
    "to the quay with help from the neighbours. One of them had lost its mast to the wind that night."
)
LIST = "home\nnews\ncontact\nabout us\nsite map\nhelp\nlogin\n" * 2


def row(text: str, language: str = "en", language_score: float = 0.9) -> dict[str, Any]:
    found = measure(text, TABLE).columns | {"language": language, "language_score": language_score, "url_reason": None}
    reasons = failed_rules(found, Rules(), LanguageConfig())
    return found | {"reasons": reasons, "reason": reasons[0] if reasons else None}


def facts(*entries: tuple[str, dict[str, Any], str | None, bool]) -> Facts:
    """Documents as (id, signals, id of the one that stands in, contaminated)."""
    found = Facts()
    for name, signals, original, contaminated in entries:
        found.ids.append(name)
        found.sources.append("web")
        found.signals.append(signals)
        found.duplicate_of.append(original)
        found.duplicate_reasons.append("duplicate_exact" if original else None)
        found.contaminated.append(contaminated)
        found.takedowns.append(None)
    return found


def test_a_document_is_counted_once_under_its_first_reason() -> None:
    given_facts = facts(
        ("a", row(PROSE), None, False),
        ("b", row(PROSE), "a", True),
        ("c", row(PROSE), None, True),
        ("d", row(LIST), "a", True),
    )
    fates = decide(given_facts, Policy())
    assert fates.reasons[:3] == [None, "duplicate_exact", "contaminated"]
    assert fates.reasons[3] == given_facts.signals[3]["reasons"][0]
    assert sum(fates.dropped().values()) == 3
    assert list(fates.dropped()) == sorted(fates.dropped(), key=DROP_ORDER.index)


def test_a_policy_can_leave_duplicates_and_contamination_in() -> None:
    given_facts = facts(("a", row(PROSE), None, False), ("b", row(PROSE), "a", True))
    fates = decide(given_facts, Policy(drop_duplicates=False, drop_contaminated=False))
    assert fates.reasons == [None, None]


def test_other_thresholds_are_applied_to_the_stored_columns() -> None:
    short = row(" ".join(PROSE.split()[:38]))
    assert "gopher_few_words" in short["reasons"]
    rules = replace(Rules(sentences=None), words=WordRules(minimum_words=10))
    assert decide(facts(("a", short, None, False)), Policy(rules=rules)).reasons == [None]
    strict = replace(Rules(), words=WordRules(minimum_words=90))
    assert decide(facts(("a", row(PROSE), None, False)), Policy(rules=strict)).reasons == ["gopher_few_words"]
    french = row(PROSE, language="fr")
    assert decide(facts(("a", french, None, False)), Policy()).reasons == ["language_other"]
    assert decide(facts(("a", french, None, False)), Policy(language=LanguageConfig(keep=("fr",)))).reasons == [None]
    # Languages that the policy does not speak of keep their judgement when only rules change, and the other way round.
    assert decide(facts(("a", french, None, False)), Policy(rules=rules)).reasons == ["language_other"]
    listed = row(LIST)
    only_language = decide(facts(("a", listed, None, False)), Policy(language=LanguageConfig(keep=())))
    assert only_language.reasons == [listed["reason"]]


def test_when_other_thresholds_drop_the_one_that_stays_its_least_copy_takes_its_place() -> None:
    longer = row(PROSE + " " + PROSE.replace("ferry", "night"))
    strict = Policy(rules=replace(Rules(repetition=None), words=WordRules(minimum_words=90)))
    given_facts = facts(
        ("a", row(PROSE), None, False),
        ("d", longer, "a", False),
        ("c", longer, "a", False),
        ("b", row(PROSE), "a", False),
    )
    fates = decide(given_facts, strict)
    assert fates.reasons == ["gopher_few_words", "duplicate_exact", None, "gopher_few_words"]


def test_licences_are_a_predicate_of_the_policy() -> None:
    given_facts = facts(*((name, row(PROSE), None, False) for name in "abcd"), ("e", row(LIST), None, False))
    given_facts.licences = ["CC-BY-4.0", "CC-BY-NC-4.0", "unknown", "MIT", "unknown"]
    open_ones = Policy(licence=LicenceConfig(keep=("CC-BY-[0-9]*", "MIT"), keep_unknown=False))
    assert decide(given_facts, open_ones).reasons == [None, "licence_other", "licence_unknown", None, "licence_unknown"]
    known = Policy(licence=LicenceConfig(keep_unknown=False))
    assert decide(given_facts, known).reasons[:4] == [None, None, "licence_unknown", None]
    lenient = decide(given_facts, Policy(licence=LicenceConfig(keep=("MIT",))))
    assert lenient.reasons[:4] == ["licence_other", "licence_other", None, None]
    assert lenient.reasons[4] == given_facts.signals[4]["reason"]


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="samples"):
        Policy(samples=-1)
