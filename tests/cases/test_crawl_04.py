"""Language identification does not depend on line breaks and control characters."""

from __future__ import annotations

import pytest

from marin.data.filtering.config import LanguageConfig, SignalConfig, UrlConfig
from marin.data.filtering.language import load_identifier

SENTENCES = (
    "The clay workshop sorted the tide tables because the river had risen.",
    "An old surveyor measured three copper kettles after a long and quiet meeting.",
    "The village council recorded the wooden ladder before the rain arrived.",
    "Our night train carried a box of letters with help from the neighbours.",
) * 3
PLAIN = " ".join(SENTENCES)
LAYOUTS = {
    "lf": "\n".join(SENTENCES),
    "crlf": "\r\n".join(SENTENCES),
    "cr": "\r".join(SENTENCES),
    "leading": "\n\n\n" + PLAIN,
    "far down": "\n" * 20_000 + PLAIN,
    "nul": PLAIN.replace(" ", "\x00", 1),
    "tabs": PLAIN.replace(" ", "\t"),
    "line separators": "\u2028".join(SENTENCES),
}


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_every_layout_has_the_label_and_score_of_the_plain_text(layout: str) -> None:
    identifier = load_identifier()
    plain = identifier.identify(PLAIN, LanguageConfig())
    found = identifier.identify(LAYOUTS[layout], LanguageConfig())
    assert plain.language == found.language == "en"
    assert found.score == pytest.approx(plain.score, abs=1e-3)


@pytest.mark.parametrize("text", ["", "\n\n\n", " \t\r\n", "\x00\x00", "…", "123"])
def test_a_text_without_letters_is_of_unknown_language_and_dropped_with_a_reason(text: str) -> None:
    from marin.data.filtering.annotate import signals_of
    from marin.data.filtering.urls import UrlJudge, blocked_urls

    config = SignalConfig(url=UrlConfig(integrated_lists=False))
    row = signals_of(text, None, config, UrlJudge(blocked_urls((), config.url)))
    assert row["language"] == "unknown"
    assert row["reason"] in ("empty", "language_unknown")
