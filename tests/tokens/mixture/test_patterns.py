"""Factors for all cells of a kind, by shell pattern."""

from __future__ import annotations

import pytest

from marin.tokens.mixture.config import MixtureConfig, Phase
from marin.tokens.mixture.weights import resolve_weights

TOKENS = {"news-q0": 100, "news-q1": 100, "web-q0": 100, "web-q1": 100}


def test_a_pattern_weighs_every_cell_that_it_matches_and_a_name_comes_before_it() -> None:
    config = MixtureConfig(phases=(Phase("all", weights={"*-q1": 3.0, "web-q1": 5.0}),))
    (shares,) = resolve_weights(config, TOKENS).phases
    assert shares == pytest.approx({"news-q0": 0.1, "news-q1": 0.3, "web-q0": 0.1, "web-q1": 0.5})


def test_a_pattern_without_a_cell_and_two_patterns_for_one_cell_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no such cell 'blog-\\*'"):
        MixtureConfig(phases=(Phase("all", weights={"blog-*": 2.0}),)).check_cells(TOKENS)
    with pytest.raises(ValueError, match="'web-q1' matches '\\*-q1' and 'web-\\*'"):
        MixtureConfig(phases=(Phase("all", weights={"*-q1": 2.0, "web-*": 2.0}),)).check_cells(TOKENS)
