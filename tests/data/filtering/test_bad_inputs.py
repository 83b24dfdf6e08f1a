"""Signals of texts that are broken, empty, huge or odd: each has a row, and none costs more than it is long."""

from __future__ import annotations

import time
import tracemalloc
import unicodedata
from typing import Any

import pytest

from marin.data.filtering.annotate import signals_of
from marin.data.filtering.config import LanguageConfig, SignalConfig, UrlConfig
from marin.data.filtering.urls import UrlJudge, blocked_urls
from tests.data.dedup.texts import prose

CONFIG = SignalConfig(url=UrlConfig(integrated_lists=False))
URLS = UrlJudge(blocked_urls((), CONFIG.url))
GOOD = "\n".join(prose(seed, sentences=4) for seed in range(5))


def signals(text: str, config: SignalConfig = CONFIG) -> dict[str, Any]:
    return signals_of(text, None, config, URLS)


@pytest.mark.parametrize("text", ["", " ", "\n\n\n", "\t \r\n", "\u2028\u2029", "\u00a0\u3000", "\x00\x01", "\ufeff"])
def test_a_text_of_nothing_is_dropped_and_resembles_nothing(text: str) -> None:
    row = signals(text)
    assert row["reason"] is not None
    assert row["bands"] is None
    assert row["content"] is None


@pytest.mark.parametrize("text", ["One.", "Two words.", "Three short words."])
def test_a_text_shorter_than_a_shingle_is_dropped_and_has_bands_of_its_own(text: str) -> None:
    row, other = signals(text), signals(text + " More.")
    assert "gopher_few_words" in row["reasons"]
    assert row["bands"] != other["bands"]
    assert row["content"] != other["content"]


@pytest.mark.parametrize("codes", [(0xD800,), (0xDFFF,), (0x61, 0xD83D, 0x20, 0x62), (0xDC00, 0xD800)])
def test_lone_surrogates_cost_no_document_its_signals(codes: tuple[int, ...]) -> None:
    broken = "".join(map(chr, codes))
    row = signals(GOOD + "\n" + broken + " the end of it.")
    assert row["reasons"] == signals(GOOD)["reasons"] == []
    assert signals(broken)["reason"] is not None


@pytest.mark.parametrize("control", ["\x00", "\x07", "\x1b", "\x7f", "\x85", "\ufeff", "\u200b"])
def test_control_signs_do_not_turn_a_good_text_into_a_bad_one(control: str) -> None:
    row = signals(GOOD.replace(" the ", f" {control}the ", 5))
    assert row["language"] == "en"
    assert row["reasons"] == []


@pytest.mark.parametrize("line_break", ["\r\n", "\r", "\u2028", "\u2029", "\x85", "\x0b", "\x0c"])
def test_every_line_break_breaks_lines(line_break: str) -> None:
    plain, other = signals(GOOD), signals(GOOD.replace("\n", line_break))
    different = {name for name in plain if plain[name] != other[name]}
    assert different <= {"language_score"}
    assert other["language_score"] == pytest.approx(plain["language_score"], abs=1e-3)


def test_unicode_forms_make_the_same_copy() -> None:
    text = GOOD + " Élan, naïveté, café: office."
    composed = unicodedata.normalize("NFC", text)
    for form in ("NFD", "NFKC", "NFKD"):
        other = signals(unicodedata.normalize(form, composed.replace("office", "o\ufb03ce")))
        assert other["content"] == signals(composed)["content"]
        assert other["bands"] == signals(composed)["bands"]


def test_replacement_signs_are_signs() -> None:
    row = signals("\ufffd " * 400)
    assert row["alphabetic_words"] == 0
    assert row["language"] == "unknown"


def test_special_tokens_are_text_like_any_other() -> None:
    row = signals(GOOD + "\n<|endoftext|> is written between documents, as </s> is.")
    assert row["reasons"] == []
    assert row["words"] > signals(GOOD)["words"]


@pytest.mark.parametrize(
    "unit",
    ["a", "ab-", "é", "漢", "ก", "!", "a.b", "x@", "1.1.", "#", "[1]", "{", "\u0301", "a\u0301", "'s", "http://a.b/"],
)
def test_a_line_of_a_million_signs_without_spaces_takes_no_more_time_than_it_is_long(unit: str) -> None:
    def cost(size: int) -> float:
        text = unit * (size // len(unit))
        began = time.process_time()
        row = signals(text)
        assert row["reason"] is not None
        return time.process_time() - began

    cost(1000)
    assert cost(1_000_000) < 25 * cost(100_000) + 0.5


def test_a_huge_document_is_measured_in_memory_that_does_not_grow_with_it() -> None:
    text = (prose(1, sentences=40) + "\n") * (40_000_000 // len(prose(1, sentences=40)))
    assert len(text) > 35_000_000
    tracemalloc.start()
    row = signals(text)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert row["characters"] <= CONFIG.longest_text
    assert peak < 300 * CONFIG.longest_text
    assert row["content"] != signals(text[:-1] + "x")["content"]


def test_a_right_to_left_text_keeps_its_order() -> None:
    hebrew = "המעבורת חיכתה לאור מפני שהנהר עלה מעל האבנים. " * 3
    assert signals(hebrew)["content"] != signals(" ".join(reversed(hebrew.split())))["content"]
    row = signals(hebrew, SignalConfig(url=CONFIG.url, language=LanguageConfig(keep=("he",))))
    assert row["language"] == "he"
    assert not row["unspaced"]
