"""Marks found in many pieces at once against a look at each piece."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from marin.data.filtering.marks import (
    CITATION,
    CURLY,
    FILLER,
    OVERLONG,
    PERSONAL,
    POLICY,
    POLICY_PHRASES,
    marks_of_all,
)
from marin.data.filtering.pii import may_be_personal
from tests.data.filtering.test_pii import KEYS

ADDRESSES = st.text(alphabet="0123456789abcfF.:-+()@/[]_é", min_size=1, max_size=24)
KNOWN = st.sampled_from(["212-664-7665", "8.8.8.8", "2001:4860::8888", "-----BEGIN", "-----END", "+4930901820", *KEYS])
PIECES = st.lists(st.one_of(ADDRESSES, KNOWN, st.builds(str.__add__, KNOWN, ADDRESSES)), min_size=1, max_size=12)


@settings(max_examples=400, deadline=None)
@given(PIECES)
def test_pieces_that_may_be_personal_are_marked_in_any_company(pieces: list[str]) -> None:
    marked = [bool(mark & PERSONAL) for mark in marks_of_all(pieces)]
    assert marked == [may_be_personal(piece) for piece in pieces]


def test_a_part_of_every_policy_phrase_is_marked() -> None:
    for phrase in POLICY_PHRASES:
        assert any(mark & POLICY for mark in marks_of_all(phrase.upper().split())), phrase


def test_marks_belong_to_the_pieces_that_hold_their_signs() -> None:
    pieces = ["word", "see[1]", "{", "Lorem,", "İİ[", "x" * 1001, "x" * 1000, "[{"]
    marks = marks_of_all(pieces).tolist()
    assert marks == [0, CITATION, CURLY, FILLER, CITATION, OVERLONG, 0, CITATION | CURLY]
