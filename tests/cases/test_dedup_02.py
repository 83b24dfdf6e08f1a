"""Sources and shards without documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.dedup.runs import run_dedup
from tests.data.dedup.texts import prose
from tests.data.pages import Page, PageSet


@pytest.mark.parametrize("shards", [1, 5, 8])
def test_empty_sources_and_shards_do_no_harm(tmp_path: Path, shards: int) -> None:
    pages = [Page(prose(number % 6), id=f"p{number}") for number in range(8)]
    dealt = tuple(tuple(pages[start::shards]) for start in range(shards))
    sets = [PageSet("empty", ()), PageSet("web", ((), *dealt, ())), PageSet("none", ((), ()))]
    outcome = run_dedup(tmp_path, sets)
    assert len(outcome.kept) == 6
    assert outcome.removed == {"p6": "p0", "p7": "p1"}


def test_nothing_at_all_gives_nothing(tmp_path: Path) -> None:
    outcome = run_dedup(tmp_path, [PageSet("empty", ())])
    assert outcome.kept == frozenset()
    assert outcome.attributes.rows == 0
