"""Quality rules on wordless and padded text."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from marin.data.filtering.annotate import signals_of
from marin.data.filtering.config import LanguageConfig, Rules, SignalConfig, UrlConfig
from marin.data.filtering.rules import failed_rules
from marin.data.filtering.urls import UrlJudge, blocked_urls

CONFIG = SignalConfig(url=UrlConfig(integrated_lists=False))
URLS = UrlJudge(blocked_urls((), CONFIG.url))
WORDLESS = {
    "empty": "",
    "spaces": "   \t  ",
    "newlines": "\n" * 40,
    "one word": "word",
    "signs": "!!! ... ### ---",
    "digits": "1234567890 " * 60,
    "blank and sign": "\n \n.\n \n",
}
PARAGRAPHS = (
    "The ferry crew waited for the light because the river had risen over the stones of the old quay.",
    "Nobody believed that the bridge would hold, and yet it carried three carts to the western gate that night.",
    "When the second bell rang, the harbour pilot closed his book and went to see what had become of the boats.",
    "They were tied up with help from the neighbours, and only one of them had lost its mast to the wind.",
    "In the morning an old surveyor drew a map of the valley, and the council paid him with a basket of pears.",
    "It hangs in the schoolroom to this day, a little faded, with every house and every orchard in its place.",
)
GOOD = "\n\n".join(PARAGRAPHS)
PADDED = {
    "as it is": GOOD,
    "padded": "\n" * 120 + GOOD + "\n" * 120,
    "between": ("\n" * 60).join(PARAGRAPHS),
    "crlf": GOOD.replace("\n", "\r\n"),
    "blank lines with spaces": GOOD.replace("\n\n", "\n \t\n"),
}
FAMILIES = tuple(field.name for field in fields(Rules))


def judge(text: str, rules: Rules) -> list[str]:
    row: dict[str, Any] = signals_of(text, None, CONFIG, URLS)
    return failed_rules(row, rules, LanguageConfig())


@pytest.mark.parametrize("name", sorted(WORDLESS))
def test_a_text_without_words_is_dropped_with_a_reason(name: str) -> None:
    assert judge(WORDLESS[name], Rules())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", sorted(WORDLESS))
def test_no_family_of_rules_raises_on_it_alone(name: str, family: str) -> None:
    alone = replace(Rules(), **{other: None for other in FAMILIES if other != family})
    judge(WORDLESS[name], alone)


@pytest.mark.parametrize("layout", sorted(PADDED))
def test_a_good_text_passes_whatever_blank_lines_it_has(layout: str) -> None:
    assert judge(PADDED[layout], Rules()) == []


@pytest.mark.parametrize("layout", sorted(PADDED))
def test_blank_lines_do_not_change_what_fails_under_strict_rules(layout: str) -> None:
    rules = replace(
        Rules(),
        lines=replace(Rules().lines, minimum_terminal_lines=1.0, maximum_line_breaks=0.05, maximum_short_lines=0.0),  # type: ignore[type-var]
    )
    assert judge(PADDED[layout], rules) == judge(GOOD, rules)
