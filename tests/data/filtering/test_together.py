"""What is measured of a document depends on nothing but the document."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.data.filtering.annotate import signals_of, signals_of_all
from marin.data.filtering.config import SignalConfig, UrlConfig
from marin.data.filtering.features import measure, measure_all
from marin.data.filtering.splitting import split_piece
from marin.data.filtering.steps import annotate
from marin.data.filtering.urls import UrlJudge, blocked_urls
from marin.data.filtering.words import WordTable
from marin.execution import materialise
from tests.data.dedup.texts import prose
from tests.data.pages import Page, PageSet, write_pages

CONFIG = SignalConfig(url=UrlConfig(integrated_lists=False))
URLS = UrlJudge(blocked_urls((), CONFIG.url))

LINES = st.sampled_from(
    [
        *(
            "The river had risen over the stones.",
            "A ferry crew waited.",
            "we use cookies here and there",
            "",
            "  ",
            "- x",
        ),
        *(
            "The river had risen over the stones.",
            "清晨的河面上还有薄雾，渡船的人已经在岸边等着天亮。",
            "see [1] for it. Or not.",
        ),
        *("เช้าวันนั้นหมอกยังปกคลุมแม่น้ำ คนเรือข้ามฟากนั่งรอแสงแรก", "a b a b a b a b a b a b", "mail me@example.org", "{"),
    ]
)
TEXTS = st.lists(LINES, max_size=8).map("\n".join)


@settings(max_examples=150, deadline=None)
@given(st.lists(TEXTS, max_size=8))
def test_texts_measured_together_have_the_features_that_each_has_alone(texts: list[str]) -> None:
    together = measure_all(texts, WordTable())
    for text, found in zip(texts, together, strict=True):
        alone = measure(text, WordTable())
        assert found.columns == alone.columns
        assert found.suspects == alone.suspects
        assert np.array_equal(found.plain_words, alone.plain_words)


def test_order_and_company_change_no_signal() -> None:
    texts = [prose(seed, sentences=3 + seed % 40) for seed in range(120)] + ["", "x", "\n"]
    alone = [signals_of(text, None, CONFIG, URLS) for text in texts]
    order = list(range(len(texts)))
    random.Random(1).shuffle(order)
    shuffled = signals_of_all([texts[at] for at in order], [None] * len(texts), CONFIG, URLS)
    assert [shuffled[order.index(at)] for at in range(len(texts))] == alone


def test_signals_do_not_depend_on_how_documents_lie_in_shards(tmp_path: Path) -> None:
    pages = [Page(prose(seed, sentences=12), url=f"http://one.example.org/{seed}") for seed in range(30)]

    def signals(shards: tuple[tuple[Page, ...], ...], name: str) -> dict[str, dict[str, Any]]:
        made = materialise(annotate(write_pages(PageSet("web", shards)), CONFIG), prefix=str(tmp_path / name))
        rows = [row for shard in made.shards for row in pq.read_table(made.local(shard.name)).to_pylist()]
        return {row["id"]: row for row in rows}

    one = signals((tuple(pages),), "one")
    assert len(one) == 30
    assert signals((tuple(pages[20:]), tuple(pages[:3]), tuple(pages[3:20])), "three") == one


def test_frequent_words_are_cut_as_rare_ones_are() -> None:
    table = WordTable()
    pieces = ["don't", "river,", "(see", "x.y", "e.g.", "it's).", "don't"]
    for _ in range(2):
        cut = table.cut(table.numbers(pieces))
        assert cut.counts.tolist() == [len(split_piece(piece)) for piece in pieces]
