"""The stored form of text."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.data.documents.normalise import normalise, normalise_text


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r", "\u2028", "\u2029", "\x85", "\x0b", "\x0c"])
def test_every_line_break_becomes_a_newline(line_break):
    assert normalise_text(f"one{line_break}two") == "one\ntwo"


def test_layouts_of_one_text_become_equal():
    assert len({normalise_text(t) for t in ("\ufeffa\r\nb", "a\nb", "a\rb", "a\x00\u2028b", "a\x07\nb")}) == 1


def test_controls_are_stripped_and_counted():
    result = normalise("a\x00b\x1b\x7f\tc\n")
    assert (result.text, result.stripped) == ("ab\tc\n", 3)


def test_lone_surrogates_are_replaced_and_pairs_are_joined():
    assert normalise("a\ud800b").text == "a\ufffdb"
    assert normalise("a\ud800b").surrogates == 1
    assert normalise("\ud83d\ude00").text == "\U0001f600"


def test_unicode_form_is_nfc():
    assert normalise_text("cafe\u0301") == "caf\u00e9"


@given(st.text(st.characters()))
def test_normalisation_is_idempotent_and_gives_valid_text(text):
    once = normalise_text(text)
    assert normalise_text(once) == once
    once.encode("utf-8")
    assert unicodedata.is_normalized("NFC", once)
    assert not any(unicodedata.category(c) == "Cc" and c not in "\n\t" for c in once)


@pytest.mark.parametrize("before", ["", "a", "\u00e9", "\ud55c", "\u0308"])
@pytest.mark.parametrize("count", [31, 32, 33, 64, 500])
def test_long_runs_of_combining_marks_are_ordered_as_the_standard_says(before, count):
    marks = "".join("\u0316\u0301\u0344\u0345\u0334"[n * n % 5] for n in range(count))
    text = f"x {before}{marks}z{marks} end"
    assert normalise_text(text) == unicodedata.normalize("NFC", text)


def test_a_page_of_combining_marks_takes_no_longer_than_its_length():
    text = "a" + "\u0301\u0316" * 300_000
    assert len(normalise_text(text)) == len(text) - 1  # the first acute joins the letter
