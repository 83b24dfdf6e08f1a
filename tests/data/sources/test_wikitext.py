"""MediaWiki's markup as plain text."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.data.sources.wikitext import plain_text


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("'''Bold''' and ''italic'' and '''''both'''''.", "Bold and italic and both."),
        ("A [[link]], [[target|words]], [[plural]]s, [[:Category:Mills|mills]].", "A link, words, plurals, mills."),
        ("[https://x.invalid/a the words] and [https://x.invalid/b].", "the words and ."),
        ("{{Infobox\n| a = {{nested|{{deep}}}}\n}}Prose.", "Prose."),
        ('{| class="wikitable"\n|-\n| a || {{b}}\n|}\nAfter.', "After."),
        ("Fact.<ref name=x>A book, [[p]].</ref> More.<ref name=x /> End.", "Fact. More. End."),
        ("[[File:A.jpg|thumb|A [[mill]] in {{year}}]]Prose.", "Prose."),
        ("[[Category:Mills]]\n[[Kategorie:Mühlen]]", ""),
        ("== Head ==\nText.\n=== Sub ===\nMore.", "Head\nText.\nSub\nMore."),
        ("* one\n** two\n# three\n: four", "- one\n- two\n- three\n- four"),
        ("a <!-- hidden {{ --> b<br/>c <small>d</small>", "a bc d"),
        ("Fish &amp; chips&nbsp;&ndash; 5 &lt; 6", "Fish & chips – 5 < 6"),
        ("A town ({{IPA|x}}) here ( ; ) it is.", "A town here it is."),
        ("__NOTOC__\nx = <math>a^2</math>.", "x = ."),
        ("An open {{template without end", "An open template without end"),
        ("A }} closing and ]] too.", "A }} closing and  too."),
        ("open [[link without end", "open link without end"),
        ("Text.<ref>never closed\nmore\n\nNext paragraph.", "Text.\n\nNext paragraph."),
    ],
)
def test_markup_becomes_prose(markup: str, text: str) -> None:
    assert plain_text(markup) == text.replace("  ", " ")


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "{{",
                "}}",
                "[[",
                "]]",
                "{|",
                "|}",
                "<ref>",
                "</ref>",
                "<!--",
                "-->",
                "'''",
                "=",
                "\n",
                "|",
                "a",
                " ",
                "[http://x ",
                "]",
            ]
        ),
        max_size=60,
    )
)
def test_any_markup_ends_and_leaves_no_template(pieces: list[str]) -> None:
    text = plain_text("".join(pieces))
    assert "{{" not in text or "<" in text
    assert "\n\n\n" not in text


@pytest.mark.parametrize(
    "piece",
    [
        "{{",
        "[[",
        "<ref>",
        "<!--",
        "[http://x ",
        "'''",
        "(",
        "==",
        "<ref ",
        "{|",
        "[[a|",
        "a<ref>b</ref>",
        "<ref>a\n\n",
        "[[a|[[b]]]]",
    ],
)
def test_time_grows_with_the_length_only(piece: str) -> None:
    def seconds(count: int) -> float:
        started = time.process_time()
        plain_text(piece * count + "]]" * count)
        return time.process_time() - started

    short = max(min(seconds(5_000) for _ in range(3)), 1e-3)
    assert min(seconds(40_000) for _ in range(2)) < 8 * 4 * short
