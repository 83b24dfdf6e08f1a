"""Texts shorter than an n-gram."""

from __future__ import annotations

from pathlib import Path

import pytest

from marin.data.dedup.config import DedupConfig
from tests.data.dedup.runs import run_dedup
from tests.data.dedup.texts import prose
from tests.data.pages import Page, PageSet

SHORT = ("yes", "no", "see below", "thank you", "page not found", "all rights reserved", "read more", "next page")


@pytest.mark.parametrize("fuzzy", [False, True])
def test_different_short_texts_stay_and_each_repeat_loses_one_copy(tmp_path: Path, fuzzy: bool) -> None:
    pages = [Page(text, id=f"s{number}") for number, text in enumerate(SHORT)]
    pages += [Page("thank you", id="repeat-a"), Page("Read more", id="repeat-b")]
    pages += [Page("", id="e0"), Page("   ", id="e1"), Page("?!", id="e2")]
    pages += [Page(prose(1), id="long0"), Page(prose(2), id="long1")]
    outcome = run_dedup(tmp_path, [PageSet("web", (tuple(pages),))], DedupConfig(fuzzy=fuzzy))
    assert outcome.removed == {"s3": "repeat-a", "s6": "repeat-b"}
    assert {"e0", "e1", "e2", "long0", "long1"} <= outcome.kept
