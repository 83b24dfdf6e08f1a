from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from marin.tokens.mixture.permutation import key_of, permute


def whole(size: int, key: int) -> np.ndarray:
    return permute(np.arange(size), np.full(size, size), np.full(size, key, dtype=np.uint64))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 16, 17, 23, 100, 1024, 99_991])
def test_every_index_appears_once(size: int):
    assert np.array_equal(np.sort(whole(size, key_of(1, "a"))), np.arange(size))


def test_sizes_and_keys_mix_freely_in_one_call():
    sizes = np.repeat([3, 50, 1000], [3, 50, 1000])
    keys = np.repeat(np.array([11, 12, 13], dtype=np.uint64), [3, 50, 1000])
    indices = np.concatenate([np.arange(3), np.arange(50), np.arange(1000)])
    found = permute(indices, sizes, keys)
    assert np.array_equal(found, np.concatenate([whole(3, 11), whole(50, 12), whole(1000, 13)]))


def test_large_sizes_stay_within_bounds():
    size = 4_400_000_003
    indices = np.random.default_rng(0).integers(0, size, 20_000)
    found = permute(indices, np.full(20_000, size), np.full(20_000, 99, dtype=np.uint64))
    assert found.min() >= 0
    assert found.max() < size
    assert len(set(found.tolist())) == len(set(indices.tolist()))
    counts = np.histogram(found, bins=50, range=(0, size))[0]
    assert stats.chisquare(counts).pvalue > 1e-4


def test_every_place_is_equally_likely_over_keys():
    size, keys = 13, 6000
    places = permute(
        np.tile(np.arange(size), keys),
        np.full(size * keys, size),
        np.repeat(np.arange(keys, dtype=np.uint64) * np.uint64(0x1234567), size),
    ).reshape(keys, size)
    table = np.array([np.bincount(places[:, index], minlength=size) for index in range(size)])
    assert stats.chisquare(table.ravel()).pvalue > 1e-4
    pairs = np.bincount(places[:, 0] * size + places[:, 1], minlength=size * size).reshape(size, size)
    assert np.diag(pairs).sum() == 0
    assert stats.chisquare(pairs[~np.eye(size, dtype=bool)]).pvalue > 1e-4


@pytest.mark.parametrize("size", [997, 50_000])
def test_neighbours_are_uncorrelated(size: int):
    order = whole(size, key_of(0, "serial")).astype(float)
    bound = 4.5 / np.sqrt(size)
    for lag in (1, 2, 3, 7, int(np.sqrt(size)), int(np.sqrt(size)) + 1):
        assert abs(np.corrcoef(order[:-lag], order[lag:])[0, 1]) < bound
    assert abs(np.corrcoef(order, np.arange(size))[0, 1]) < bound
    steps = np.bincount(np.diff(order.astype(np.int64)) % size, minlength=size)
    assert steps.max() < 12


def test_keys_of_different_seeds_and_names_give_unrelated_orders():
    first, second, third = (whole(1000, key_of(*key)) for key in ((0, "a"), (1, "a"), (0, "b")))
    for left, right in ((first, second), (first, third), (second, third)):
        assert (left == right).sum() < 10
        assert abs(np.corrcoef(left, right)[0, 1]) < 0.15
