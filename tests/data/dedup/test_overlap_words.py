"""Words as they are compared: what two copies of a passage may differ in, and where words stand."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.data.dedup.overlap import words as reading
from marin.data.dedup.overlap.words import WordReader, chunks_of, plain_words, word_places
from marin.data.documents.normalise import normalise_text


def words(text: str) -> list[str]:
    return [word for piece in reading.without_tags(text).split() for word in plain_words(piece)]


SENTENCE = "Don't the café's 1,250 loaves cost three dollars each, she asked the old baker?"
PLAIN = SENTENCE.lower().translate({ord(sign): None for sign in "',?"}).split()


@pytest.mark.parametrize(
    "copy",
    [
        SENTENCE,
        SENTENCE.upper(),
        SENTENCE.replace(" ", "\n\t "),
        SENTENCE.replace(" ", "\u00a0"),
        SENTENCE.replace("'", "\u2019"),
        SENTENCE.replace("'", "&#39;").replace("é", "&eacute;"),
        SENTENCE.replace("'", "&amp;#39;"),
        SENTENCE.replace(" ", "&nbsp;"),
        SENTENCE.replace("each, she", "each&mdash;she").replace("?", "&quot;"),
        unicodedata.normalize("NFD", SENTENCE),
        "".join(chr(ord(sign) + 0xFEE0) if "!" <= sign <= "~" else sign for sign in SENTENCE),
        SENTENCE.replace("loaves", "loa\u00adves").replace("baker", "ba\u200bker").replace("cost", "\ufeffcost"),
        SENTENCE.replace("three", "<b>three</b>").replace("each, ", 'each,<br class="x" />'),
        SENTENCE.replace("three", "**three**").replace("old", "_old_"),
        SENTENCE.replace(",", "").replace("?", ""),
        f"“{SENTENCE}”",
    ],
)
def test_copies_that_differ_in_signs_case_space_forms_and_entities_have_the_same_words(copy: str) -> None:
    assert words(copy) == PLAIN
    assert words(normalise_text(copy)) == PLAIN


def test_letter_case_is_folded_fully_and_compatible_forms_are_one() -> None:
    assert words("STRASSE ﬁne Ⅷ ΣΊΣΥΦΟΣ") == words("straße fine viii σίσυφος")
    assert words("ｶﾞﾗｽ") == words("ガラス")


def test_every_character_of_a_script_without_spaces_is_a_word() -> None:
    assert words("今天天气很好，我们去公园。") == list("今天天气很好我们去公园")
    assert words("今天天气\n很好") == words("今天天气很好")
    assert words("plan是B") == ["plan", "是", "b"]


def test_numbers_keep_their_digits_together_but_lists_of_numbers_stay_apart() -> None:
    assert words("1,000,000 and 3.5 and 1,2,3") == ["1000000", "and", "3", "5", "and", "1", "2", "3"]


def test_a_reader_gives_the_same_words_for_any_batch_and_after_its_memory_starts_afresh() -> None:
    texts = [f"{SENTENCE} number {n}" for n in range(50)] + ["", "…"]
    whole = WordReader().read(texts)
    small = WordReader(capacity=8)
    assert whole.hashes.tolist() == [h for text in texts for h in small.read([text]).hashes.tolist()]
    assert whole.counts.tolist() == [len(words(text)) for text in texts]
    assert whole.letters[: len(PLAIN)].tolist() == [not word.isdigit() for word in PLAIN]


def test_a_long_text_is_read_in_parts_that_together_are_the_whole() -> None:
    text = " ".join(f"word{n}" for n in range(400))
    parts = list(chunks_of(text, 100))
    assert "".join(parts) == text
    assert max(map(len, parts)) <= 100
    assert [word for part in parts for word in part.split()] == text.split()
    assert "".join(chunks_of("x" * 250, 100)) == "x" * 250


def test_places_are_those_of_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CHUNK", 20)
    text = "The café&#39;s  <b>old</b>\n(1,250) 天气 ﬁne— e\u0301nd x&amp;y"
    starts, ends = word_places(text, range(10), WordReader())
    found = [text[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    assert found == ["The", "café&#39;s", "old", "1,250", "天", "气", "ﬁne", "e\u0301nd", "x", "y"]
    some = [0, 3, 9]
    assert [values.tolist() for values in word_places(text, some, WordReader())] == [
        starts[some].tolist(),
        ends[some].tolist(),
    ]


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("ab9é'’“”—…,.;-_*&<>()"), min_size=1, max_size=8))
def test_the_short_way_to_the_words_of_a_piece_comes_to_what_the_long_way_does(piece: str) -> None:
    assert plain_words(piece) == [plain for _, _, plain in reading._spans(reading.fold(piece))]


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("aZé\u0301ß ｶﾞ天ิ&#39;,'’1 \u00ad<b>-\n"), max_size=40))
def test_places_are_as_many_as_words_and_ascend(text: str) -> None:
    count = len(WordReader().read([text]).hashes)
    starts, ends = word_places(text, range(count + 5), WordReader())
    assert len(starts) == len(ends) == count
    assert (starts < ends).all()
    assert (starts[1:] >= starts[:-1]).all()
    assert not len(ends) or ends[-1] <= len(text)
