"""Splitting text into words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.data.filtering.splitting import split_piece
from marin.data.filtering.words import (
    ALPHABETIC,
    SPOKEN,
    STOP_WORD_SHIFT,
    WordTable,
    n_gram_hashes,
    plain_hashes_of,
    plain_hashes_of_all,
    plain_word,
    word_hash,
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, world!", ["Hello", ",", "world", "!"]),
        ("don't we'll I'm", ["do", "n't", "we", "'ll", "I", "'m"]),
        ("(see below).", ["(", "see", "below", ")", "."]),
        ("well-known end.Next", ["well", "-", "known", "end", ".", "Next"]),
        ("3.14 1,000 $5 U.S. e.g. Mr.", ["3.14", "1,000", "$", "5", "U.S.", "e.g.", "Mr."]),
        ("wait... what", ["wait", "...", "what"]),
        ("https://example.org/a?b=c a@b.org", ["https://example.org/a?b=c", "a@b.org"]),
        ("the dog's x/y", ["the", "dog", "'s", "x", "/", "y"]),
        ("日本語です。", list("日本語です。")),
        ("漢字abc", ["漢", "字", "abc"]),
        ("#### ---", ["#", "#", "#", "#", "---"]),
    ],
)
def test_punctuation_contractions_and_addresses_are_split_as_word_tokenizers_do(text: str, words: list[str]) -> None:
    assert [word for piece in text.split() for word in split_piece(piece)] == words


@given(st.text(max_size=200))
def test_no_character_is_lost_or_added(text: str) -> None:
    for piece in text.split():
        assert "".join(split_piece(piece)) == piece


@given(st.lists(st.text(max_size=30), max_size=10))
def test_a_table_that_forgets_gives_the_same_lengths_kinds_and_hashes(texts: list[str]) -> None:
    roomy, cramped = WordTable(), WordTable(capacity=1)
    for text in texts:
        for table in (roomy, cramped):
            table.split([["a"], ["b"]])
        ours, _ = roomy.split([text.split()])
        theirs, _ = cramped.split([text.split()])
        for name in ("lengths", "kinds", "plain_hashes"):
            assert np.array_equal(getattr(roomy, name)[ours], getattr(cramped, name)[theirs])


def test_a_long_run_without_spaces_is_one_word_and_takes_no_time() -> None:
    assert split_piece("ab-" * 400_000) == ["ab-" * 400_000]


def test_kinds_tell_words_from_signs() -> None:
    table = WordTable()
    words, counts = table.split([["word", "42", "!!"], []])
    kinds = table.kinds[words]
    assert counts.tolist() == [4, 0]
    assert [bool(kind & SPOKEN) for kind in kinds] == [True, True, False, False]
    assert [bool(kind & ALPHABETIC) for kind in kinds] == [True, False, False, False]


def test_plain_words_ignore_case_signs_and_compatibility_forms() -> None:
    assert plain_word("Don't") == "dont"
    assert plain_word("\uff21\uff42\uff43") == "abc"
    assert plain_word("«»") == ""
    table = WordTable()
    one, other = plain_hashes_of("Hello,  World!\n", table), plain_hashes_of("hello world", table)
    assert np.array_equal(one, other)


def test_n_grams_are_equal_exactly_where_the_words_are() -> None:
    words = np.array([3, 5, 7, 3, 5, 7, 5], np.uint64)
    grams = n_gram_hashes(words, 3)
    assert len(grams) == 5
    assert grams[0] == grams[3]
    assert len(set(grams.tolist())) == 4
    assert len(n_gram_hashes(words, 8)) == 0


@pytest.mark.parametrize("letter", ["\u6f22", "\u0e01"])
def test_long_runs_beside_unspaced_letters_are_one_word_too(letter: str) -> None:
    assert split_piece(f"{letter}{'!' * 400_000}{letter}!!") == [letter, "!" * 400_000, letter, "!", "!"]


def test_the_table_stays_bounded_when_every_piece_is_too_long_to_be_remembered() -> None:
    table = WordTable(capacity=1000)
    for batch in range(20):
        table.split([[f"{batch:04d}x{n:04d}" + "a" * 80 for n in range(500)]])
    assert len(table.lengths) <= 4096


def test_texts_looked_up_together_have_the_plain_words_that_each_has_alone() -> None:
    texts = ["Hello,  World!", "", "?!", "l'été 河面 x_y", "\n", "a b a"]
    together = plain_hashes_of_all(texts, WordTable())
    assert [len(words) for words in together] == [2, 0, 0, 4, 0, 3]
    for text, words in zip(texts, together, strict=True):
        assert words.tolist() == plain_hashes_of(text, WordTable()).tolist()


def test_what_is_known_of_a_word_is_what_it_is_made_of() -> None:
    known = {"the": (3, True), "The": (3, True), "x1": (2, True), "42": (2, False), "été": (3, True), "a_b": (3, True)}
    table = WordTable()
    words, _ = table.split([list(known)])
    assert table.lengths[words].tolist() == [length for length, _ in known.values()]
    assert [bool(kind & ALPHABETIC) for kind in table.kinds[words]] == [letters for _, letters in known.values()]
    assert (table.kinds[words] & SPOKEN).all()
    assert [bool(kind >> STOP_WORD_SHIFT) for kind in table.kinds[words]] == [True] + [False] * 5
    assert table.plain_hashes[words].tolist() == [word_hash(plain_word(word)) for word in known]
