"""The policy as pure functions: each document for itself, and what becomes of one when others are dropped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.data.consolidation.config import LicenceConfig, Policy, TakedownConfig
from marin.data.consolidation.decide import DROP_ORDER, filter_reason, in_drop_order
from marin.data.filtering.config import LanguageConfig, Rules, WordRules
from marin.data.filtering.features import measure
from marin.data.filtering.rules import failed_rules
from marin.data.filtering.words import WordTable
from tests.data.consolidation.deciding import Doc, decided, expected

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


def test_a_document_is_dropped_for_its_first_reason() -> None:
    docs = [
        Doc("a"),
        Doc("b", original="a", contaminated=True),
        Doc("c", contaminated=True),
        Doc("d", reason="gopher_few_words", original="a", contaminated=True),
    ]
    assert [reason for reason, _ in decided(docs)] == [None, "duplicate_exact", "contaminated", "gopher_few_words"]
    dropped = {"contaminated": 1, "something_else": 2, "gopher_few_words": 3, "takedown": 1}
    assert list(in_drop_order(dropped)) == ["takedown", "gopher_few_words", "contaminated", "something_else"]
    assert len(set(DROP_ORDER)) == len(DROP_ORDER)


def test_a_policy_can_leave_duplicates_and_contamination_in() -> None:
    docs = [Doc("a"), Doc("b", original="a", contaminated=True)]
    assert decided(docs, Policy(drop_duplicates=False, drop_contaminated=False)) == [(None, None), (None, None)]


def test_other_thresholds_are_applied_to_the_stored_columns() -> None:
    short = row(" ".join(PROSE.split()[:38]))
    assert "gopher_few_words" in short["reasons"]
    rules = replace(Rules(sentences=None), words=WordRules(minimum_words=10))
    assert filter_reason(short, Policy(rules=rules)) is None
    strict = replace(Rules(), words=WordRules(minimum_words=90))
    assert filter_reason(row(PROSE), Policy(rules=strict)) == "gopher_few_words"
    french = row(PROSE, language="fr")
    assert filter_reason(french, Policy()) == "language_other"
    assert filter_reason(french, Policy(language=LanguageConfig(keep=("fr",)))) is None
    # Languages that the policy does not speak of keep their judgement when only rules change, and the other way round.
    assert filter_reason(french, Policy(rules=rules)) == "language_other"
    listed = row(LIST)
    assert filter_reason(listed, Policy(language=LanguageConfig(keep=()))) == listed["reason"]


def test_when_the_one_that_stays_is_dropped_its_least_copy_that_passes_takes_its_place() -> None:
    docs = [
        Doc("a", reason="gopher_few_words"),
        Doc("d", original="a"),
        Doc("c", original="a"),
        Doc("b", original="a", reason="gopher_few_words"),
    ]
    assert decided(docs) == [
        ("gopher_few_words", None),
        ("duplicate_exact", "a"),
        (None, None),
        ("gopher_few_words", None),
    ]


def test_copies_go_with_a_listed_document_in_both_directions_unless_they_are_to_stay() -> None:
    docs = [Doc("a"), Doc("b", original="a", taken="asked for"), Doc("c", original="a"), Doc("d")]
    gone = "a copy among those of a"
    assert decided(docs) == [("takedown", gone), ("takedown", "asked for"), ("takedown", gone), (None, None)]
    alone = Policy(takedown=TakedownConfig(copies=False))
    assert [reason for reason, _ in decided(docs, alone)] == [None, "takedown", "duplicate_exact", None]
    # When the listed one is the one that stands for the others, a copy takes its place.
    docs = [Doc("a", taken="asked for"), Doc("b", original="a"), Doc("c", original="a"), Doc("d")]
    assert [reason for reason, _ in decided(docs, alone)] == ["takedown", None, "duplicate_exact", None]


def test_a_takedown_comes_before_every_other_reason() -> None:
    (fate,) = decided([Doc("a", reason="gopher_few_words", contaminated=True, taken="asked for")])
    assert fate == ("takedown", "asked for")


@st.composite
def corpora(draw: st.DrawFn) -> list[Doc]:
    """Documents in families, ids like hashes, in any order."""
    reasons = st.sampled_from([None, None, "gopher_few_words", "licence_other"])
    docs: list[Doc] = []
    for family in range(draw(st.integers(1, 5))):
        members = [f"{draw(st.integers(0, 2**32 - 1)):08x}-{family}-{n}" for n in range(draw(st.integers(1, 5)))]
        for name in members:
            reason = draw(reasons)
            docs.append(
                Doc(
                    name,
                    reason=reason,
                    original=None if name == members[0] else members[0],
                    contaminated=draw(st.booleans()),
                    taken=draw(st.sampled_from([None, None, None, None, None, "asked for"])),
                    why="CC-BY-NC-4.0" if reason == "licence_other" else None,
                )
            )
    return draw(st.permutations(docs))


@settings(max_examples=150, deadline=None)
@given(corpora(), st.integers(1, 6), st.sampled_from([1, 2, 7]), st.booleans(), st.booleans(), st.booleans())
def test_fates_are_those_of_a_plain_reading_for_any_shards_and_partitions(
    docs: list[Doc], shards: int, partitions: int, copies: bool, duplicates: bool, contaminated: bool
) -> None:
    policy = Policy(takedown=TakedownConfig(copies=copies), drop_duplicates=duplicates, drop_contaminated=contaminated)
    assert decided(docs, policy, shards=shards, partitions=partitions) == expected(docs, policy)
    order = sorted(range(len(docs)), key=lambda at: docs[at].id)
    again = decided([docs[at] for at in order], policy)
    assert [again[order.index(at)] for at in range(len(docs))] == expected(docs, policy)


def test_licences_are_a_predicate_of_the_policy() -> None:
    names = ("CC-BY-4.0", "CC-BY-NC-4.0", "unknown", "MIT", "unknown")
    open_ones = LicenceConfig(keep=("CC-BY-[0-9]*", "MIT"), keep_unknown=False)
    found = [open_ones.reason(name) for name in names]
    assert found == [None, "licence_other", "licence_unknown", None, "licence_unknown"]
    known = LicenceConfig(keep_unknown=False)
    assert [known.reason(name) for name in names[:4]] == [None, None, "licence_unknown", None]
    lenient = LicenceConfig(keep=("MIT",))
    assert [lenient.reason(name) for name in names[:4]] == ["licence_other", "licence_other", None, None]


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="samples"):
        Policy(samples=-1)
