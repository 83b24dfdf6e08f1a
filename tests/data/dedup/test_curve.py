"""What the page of duplicates says of the near copies that are found, against the formula and against draws."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from marin.data.filtering.config import MinHashConfig
from marin.data.filtering.minhash import band_keys

PAGE = Path(__file__).parents[3] / "docs" / "stages" / "duplicates.md"


def row(name: str) -> list[float]:
    """The numbers of a row of the table."""
    found = re.search(rf"^\| {name} \|(.*)\|$", PAGE.read_text(), flags=re.MULTILINE)
    assert found is not None
    return [float(cell) for cell in found[1].split("|")]


def test_the_curve_on_the_page_is_that_of_the_default_bands() -> None:
    config = MinHashConfig()
    similarities = row("similarity")
    assert similarities == [0.5, 0.6, 0.7, 0.8, 0.9]
    expected = [1 - (1 - similarity**config.rows) ** config.bands for similarity in similarities]
    assert row("found") == pytest.approx(expected, abs=5e-4)
    assert f"{config.bands} bands of {config.rows}" in PAGE.read_text()


@pytest.mark.parametrize("similarity", [0.6, 0.8])
def test_pairs_of_texts_share_a_band_as_often_as_the_curve_says(similarity: float) -> None:
    config = MinHashConfig(shingle=1)
    draw = np.random.default_rng(1)
    words = 120
    shared = round(words * 2 * similarity / (1 + similarity))
    found, pairs = 0, 400
    for _ in range(pairs):
        drawn = draw.integers(1, 2**63, 2 * words - shared, dtype=np.uint64)
        one, other = drawn[:words], np.concatenate([drawn[:shared], drawn[words:]])
        keys = [band_keys(text, config) for text in (one, other)]
        assert keys[0] is not None
        assert keys[1] is not None
        found += bool((keys[0] == keys[1]).any())
    exact = shared / (2 * words - shared)
    expected = 1 - (1 - exact**config.rows) ** config.bands
    # Four standard deviations of so many draws.
    assert found / pairs == pytest.approx(expected, abs=4 * (expected * (1 - expected) / pairs) ** 0.5)
