"""Language, addresses and URLs; the annotate step as a whole."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from marin.data.filtering.annotate import signals_of_all
from marin.data.filtering.config import LanguageConfig, RepetitionRules, Rules, SignalConfig, UrlConfig, WordRules
from marin.data.filtering.language import load_identifier
from marin.data.filtering.rules import failed_rules
from marin.data.filtering.steps import annotate
from marin.data.filtering.urls import UrlJudge, blocked_urls, host_of
from marin.execution import materialise
from tests.data.pages import Page, PageSet, write_pages

PROSE = (
    "The ferry crew waited for the light because the river had risen over the stones. "
    "An old surveyor, who had measured the valley before the rain arrived, drew a map of it. "
    "Nobody believed that the bridge would hold, and yet it carried three carts to the western gate. "
    "When the second bell rang, the harbour pilot closed his book and went to see what had become of the boats. "
    "They were tied to the quay with help from the neighbours, and one of them had lost its mast to the wind."
)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        (PROSE, "en"),
        ("Die Fähre wartete auf das Licht, weil der Fluss über die Steine gestiegen war.", "de"),
        ("Паром ждал рассвета, потому что река поднялась выше камней.", "ru"),
        ("12 345 !!! 678", "unknown"),
        ("", "unknown"),
    ],
)
def test_languages_are_told_apart(text: str, language: str) -> None:
    assert load_identifier().identify(text, LanguageConfig()).language == language


def test_a_doubtful_beginning_is_judged_with_more_of_the_text() -> None:
    class Model:
        def __init__(self) -> None:
            self.lengths: list[int] = []

        def predict(self, line: str, k: int) -> tuple[tuple[str], tuple[float]]:
            self.lengths.append(len(line))
            return ("__label__en",), (0.6 if len(line) <= 500 else 0.9,)

    from marin.data.filtering.language import LanguageIdentifier

    model = Model()
    assert LanguageIdentifier(model).identify("word " * 1000, LanguageConfig()).score == 0.9
    assert model.lengths == [500, 2000]


def test_urls_are_blocked_by_domain_host_word_and_part() -> None:
    urls = [
        "http://www.pornhub.com/x",
        "http://a.b.mine.org/",
        "https://mine.org:8080/y",
        "http://example.com/xx/nudes-tits/",
    ]
    judge = UrlJudge(blocked_urls(urls, UrlConfig(domains=("mine.org",))))
    assert judge.reason(urls[0]) == "url_domain"
    assert judge.reason(urls[1]) == "url_domain"
    assert judge.reason(urls[2]) == "url_domain"
    assert judge.reason(urls[3]) is not None
    assert judge.reason("http://example.com/garden") is None
    assert judge.reason(None) is None


def test_the_host_of_odd_urls_is_found_without_raising() -> None:
    assert host_of("http://user:pw@Example.ORG.:80/a@b") == "example.org"
    assert host_of("http://[::1]:80/") == "::1"
    assert host_of("not a url") == "not a url"
    assert host_of("") == ""


def test_annotate_writes_one_row_a_document_with_its_reasons(tmp_path: Path) -> None:
    pages = write_pages(
        PageSet(
            "web",
            (
                (Page(PROSE), Page("too short"), Page("!!! ... ###")),
                (Page(PROSE.replace("river", "canal"), url="http://bad.example.org/x"),),
            ),
        )
    )
    config = SignalConfig(url=UrlConfig(integrated_lists=False, domains=("example.org",)))
    signals = materialise(annotate(pages, config), prefix=str(tmp_path))
    assert [shard.rows for shard in signals.shards] == [3, 1]
    rows = [row for shard in signals.shards for row in pq.read_table(signals.local(shard.name)).to_pylist()]
    assert [row["reason"] for row in rows[:1] + rows[3:]] == [None, "url_domain"]
    assert rows[1]["reason"] == rows[1]["reasons"][0]
    assert "gopher_few_words" in rows[1]["reasons"]
    assert rows[2]["bands"] is None
    assert rows[2]["reason"] is not None
    assert rows[0]["language"] == "en"
    assert len(rows[0]["bands"]) == 8 * config.minhash.bands


def test_documents_of_other_languages_may_be_left_unmeasured() -> None:
    german = "Die Fähre wartete auf das Licht, weil der Fluss über die Steine gestiegen war. " * 8
    every = SignalConfig(url=UrlConfig(integrated_lists=False))
    some = replace(every, measure="kept")
    urls = UrlJudge(blocked_urls((), every.url))
    texts = [PROSE, german, "", "12 345"]
    full, spared = (signals_of_all(texts, [None] * 4, config, urls) for config in (every, some))
    for at in (0, 2, 3):
        assert spared[at] == full[at]
    assert spared[1]["reasons"] == ["language_other"]
    assert spared[1]["words"] is spared[1]["bands"] is spared[1]["emails"] is None
    assert set(spared[1]) == set(full[1])
    german_passes = LanguageConfig(keep=("de",))
    assert failed_rules(spared[1], Rules(), german_passes) == ["unmeasured"]
    assert "unmeasured" not in failed_rules(full[1], Rules(), german_passes)
    # Every language passes, so every document is measured.
    assert signals_of_all(texts, [None] * 4, replace(some, language=LanguageConfig(keep=())), urls)[1]["words"]


def test_wrong_settings_name_the_field_and_the_value() -> None:
    for make, words in (
        (lambda: WordRules(minimum_words=5, maximum_words=1), ("minimum_words", "5")),
        (lambda: RepetitionRules(duplicate_lines=1.5), ("duplicate_lines", "1.5")),
        (lambda: RepetitionRules(top_n_grams=((9, 0.1),)), ("top_n_grams", "9")),
        (lambda: UrlConfig(domains=("Http://x",)), ("domains", "Http://x")),
        (lambda: LanguageConfig(window=0), ("window", "0")),
        (lambda: SignalConfig(measure="some"), ("measure", "some")),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError) as error:
            make()
        assert all(word in str(error.value) for word in words)


def test_planning_modules_import_nothing_heavy() -> None:
    heavy = {"numpy", "pyarrow", "scipy", "torch", "ray", "datatrove", "fasttext", "tldextract", "jinja2", "spacy"}
    code = (
        "import sys\n"
        "for room in ('filtering', 'dedup', 'evalsets', 'consolidation'):\n"
        "    __import__(f'marin.data.{room}.config'); __import__(f'marin.data.{room}.steps')\n"
        f"print(sorted(set(sys.modules) & {heavy!r}))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
