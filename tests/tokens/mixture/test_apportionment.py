from __future__ import annotations

import numpy as np
import pytest

from marin.tokens.mixture.apportionment import BLOCK, SLOTS, Apportionment
from marin.tokens.mixture.curve import ShareCurve

WINDOW = 10_000


def mixtures() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(7)
    tiny = np.concatenate([generator.dirichlet(np.ones(190)), np.full(10, 1e-6)])
    return {
        "dirichlet": generator.dirichlet(np.ones(200)),
        "skewed": np.exp(generator.normal(0, 3, 200)),
        "few": np.array([0.45, 0.3, 0.15, 0.1]),
        "tiny": tiny,
        "extreme": np.array([0.999, 0.001]),
        "equal": np.ones(7),
        "one dominates": np.concatenate([[1e6], generator.random(199)]),
        "single": np.ones(1),
        "zeros": np.array([0.0, 1.0, 0.0, 2.0]),
        "two of many": np.repeat([1.0, 1.9], 100),
        "three of many": np.repeat([1.0, 2.3, 170.0], 130),
    }


@pytest.mark.parametrize("name", mixtures())
@pytest.mark.parametrize("first", [0, 4_000_000_000])
def test_every_window_is_within_two_of_exact(name: str, first: int):
    shares = mixtures()[name] / mixtures()[name].sum()
    apportioned = Apportionment(ShareCurve.level(shares))
    block = first // BLOCK
    slots = np.concatenate([apportioned.block(block + index)[0] for index in range(25)])
    for component, share in enumerate(shares):
        counts = np.concatenate([[0], np.cumsum(slots == component)])
        window = counts[WINDOW:] - counts[:-WINDOW]
        assert np.abs(window - share * WINDOW).max() < 2
        exact = share * (block * BLOCK + np.arange(counts.size))
        before = apportioned.counts(block * BLOCK)[component]
        assert np.abs(before + counts - exact).max() < (1.3 if "of many" in name else 1.001)


def test_counts_have_the_closed_form_at_any_place():
    shares = mixtures()["skewed"]
    apportioned = Apportionment(ShareCurve.level(shares))
    slots = np.concatenate([apportioned.block(index)[0] for index in range(4)])
    for place in (0, 1, 2, 17, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 11):
        assert np.array_equal(apportioned.counts(place), np.bincount(slots[:place], minlength=200))


def test_blocks_do_not_depend_on_what_was_asked_before():
    shares = mixtures()["dirichlet"]
    kept = Apportionment(ShareCurve.level(shares))
    for block in (5, 4, 1_000_000, 6, 0, SLOTS // BLOCK - 1, 5):
        fresh, reused = Apportionment(ShareCurve.level(shares)).block(block), kept.block(block)
        assert np.array_equal(fresh[0], reused[0])
        assert np.array_equal(fresh[1], reused[1])


def test_components_without_a_share_get_no_slot():
    apportioned = Apportionment(ShareCurve.level([0.0, 1.0, 0.0]))
    assert set(apportioned.block(12)[0].tolist()) == {1}


@pytest.mark.parametrize("shares", [[0.0, 0.0], [1.0, -1.0], [float("nan"), 1.0], [], [float("inf"), 1.0]])
def test_impossible_shares_are_refused(shares: list[float]):
    with pytest.raises(ValueError, match="finite, not negative and not all zero"):
        Apportionment(ShareCurve.level(shares))


def test_slots_beyond_the_last_are_refused():
    with pytest.raises(IndexError):
        Apportionment(ShareCurve.level([1.0])).block(SLOTS // BLOCK)
