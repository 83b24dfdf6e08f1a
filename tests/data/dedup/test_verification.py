"""Who stays among candidates, against a plain reading of the rule, one document after the other."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.data.dedup.keys import EXACT, FUZZY, KEPT, URL
from marin.data.dedup.verification import MOST_COMPARED, Members, Verdicts, settle
from marin.data.filtering.words import mix


@dataclass(frozen=True)
class Document:
    """A candidate as a person would write it down."""

    component: int
    text: frozenset[int]
    url: int
    origin: int = 0
    protected: bool = False


def members(documents: list[Document]) -> Members:
    """The documents as arrays; of equal texts the first one has the n-grams."""
    texts = [document.text for document in documents]
    words = [texts.index(text) for text in texts]
    read = [sorted(text) if at == first else [] for at, (text, first) in enumerate(zip(texts, words, strict=True))]
    grams = [np.sort(mix(np.array(one, np.uint64))) for one in read]
    return Members(
        components=np.array([document.component for document in documents]),
        words=np.array(words),
        urls=np.array([document.url for document in documents]),
        origins=np.array([document.origin for document in documents]),
        protected=np.array([document.protected for document in documents]),
        counts=np.array([len(one) for one in grams]),
        grams=np.concatenate([np.zeros(0, np.uint64), *grams]),
    )


def told(documents: list[Document], verdicts: Verdicts) -> list[tuple[int, int]]:
    return list(zip(verdicts.keepers.tolist(), verdicts.kinds.tolist(), strict=True))


def plain(documents: list[Document], containment: float, across: bool) -> list[tuple[int, int]]:
    """Each document against those that stay, the most preferred first."""
    found: list[tuple[int, int]] = []
    for at, document in enumerate(documents):
        kept = [
            other
            for other, (_, kind) in enumerate(found)
            if kind == KEPT and documents[other].component == document.component
        ]
        verdict = (at, KEPT)
        if not document.protected:
            first = [o for o in kept if documents[o].protected and documents[o].text == document.text]
            for other in first or kept:
                same = documents[other]
                if same.text == document.text:
                    verdict = (other, EXACT)
                elif same.url == document.url:
                    verdict = (other, URL)
                elif (not across or same.origin != document.origin) and (
                    len(same.text & document.text) / len(document.text) >= containment
                ):
                    verdict = (other, FUZZY)
                if verdict[1] != KEPT:
                    break
        found.append(verdict)
    return found


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_what_stays_is_what_a_reading_one_by_one_keeps(seed: int, across: bool) -> None:
    draw = random.Random(seed)
    documents: list[Document] = []
    for component in range(draw.randint(1, 6)):
        # Texts of a component are its own, as words tie documents into one component.
        texts = [frozenset(component * 1000 + draw.randint(0, 12) for _ in range(draw.randint(1, 9))) for _ in range(6)]
        documents += [
            Document(
                component,
                draw.choice(texts),
                url=component * 100 + draw.choice([at, 40, 41]),
                origin=draw.randint(0, 1),
                protected=draw.random() < 0.1,
            )
            for at in range(draw.randint(1, 12))
        ]
    verdicts = settle(members(documents), 0.75, across=across)
    assert told(documents, verdicts) == plain(documents, 0.75, across)


def test_the_share_is_that_of_the_dropped_document_in_the_kept_one() -> None:
    documents = [Document(0, frozenset(range(100)), 0), Document(0, frozenset(range(20, 116)), 1)]
    verdicts = settle(members(documents), 0.75, across=False)
    assert told(documents, verdicts) == [(0, KEPT), (0, FUZZY)]
    assert verdicts.shares[1] == pytest.approx(80 / 96)


def test_the_share_at_the_limit_is_enough_and_less_is_not() -> None:
    limit = [Document(0, frozenset(range(75)), 0), Document(0, frozenset(range(100)), 1)]
    less = [Document(0, frozenset(range(74)), 0), Document(0, frozenset(range(100)), 1)]
    assert told(limit, settle(members(limit), 0.75, across=False))[1] == (0, FUZZY)
    assert told(less, settle(members(less), 0.75, across=False))[1] == (1, KEPT)


def test_a_chain_of_changes_does_not_vanish_with_its_first_link() -> None:
    documents = [Document(0, frozenset(range(20 * link, 20 * link + 100)), link) for link in range(8)]
    verdicts = told(documents, settle(members(documents), 0.75, across=False))
    assert verdicts == [(0, 0), (0, 3), (2, 0), (2, 3), (4, 0), (4, 3), (6, 0), (6, 3)]


def test_texts_of_one_source_are_not_compared_again_across_sources() -> None:
    text = frozenset(range(100))
    documents = [Document(0, text, 0), Document(0, text - {1}, 1), Document(0, text - {2}, 2, origin=1)]
    assert told(documents, settle(members(documents), 0.75, across=True)) == [(0, KEPT), (1, KEPT), (0, FUZZY)]


def test_a_component_of_thousands_of_unlike_documents_stays_cheap_and_says_what_was_not_compared() -> None:
    count = 5000
    documents = [Document(0, frozenset(range(10 * n, 10 * n + 10)), n) for n in range(count)]
    documents += documents[:3] + documents[-3:]
    told_to = settle(_quick_members(documents, count), 0.75, across=False)
    assert (told_to.kinds[:count] == KEPT).all()
    assert told_to.keepers[count:].tolist() == [0, 1, 2, count - 3, count - 2, count - 1]
    assert (told_to.kinds[count:] == EXACT).all()
    assert told_to.uncompared == count - MOST_COMPARED


def _quick_members(documents: list[Document], different: int) -> Members:
    grams = np.sort(mix(np.arange(10 * different, dtype=np.uint64)).reshape(different, 10), axis=1)
    words = [min(document.text) for document in documents]
    return Members(
        components=np.zeros(len(documents), np.int64),
        words=np.array(words),
        urls=np.array([document.url for document in documents]),
        origins=np.zeros(len(documents), np.int64),
        protected=np.zeros(len(documents), bool),
        counts=np.array([10] * different + [0] * (len(documents) - different)),
        grams=grams.ravel(),
    )
