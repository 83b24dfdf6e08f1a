from __future__ import annotations

import itertools

import numpy as np
import pytest

from marin.tokens.mixture.curve import OrderPhase
from marin.tokens.mixture.draws import LARGEST_RANKED, Component, Draws
from marin.tokens.mixture.order import MixtureOrder

PARTS = (0, 40, 41, 111, 200)


def drawn(sizes, used, bands: int, epochs: float, parts=()) -> list[np.ndarray]:
    """Sequences of each component, in order of its draws; the run ends after the given number of epochs."""
    components = [Component(f"c{index}", size, parts) for index, size in enumerate(sizes)]
    draws = Draws(components, used, bands, 5)
    ends = np.floor(np.asarray(used) * epochs).astype(np.int64)
    draws.end_after(ends)
    return [
        draws.sequences(np.full(end, index, dtype=np.int64), np.arange(end, dtype=np.int64))[1]
        for index, end in enumerate(ends)
    ]


@pytest.mark.parametrize("bands", [1, 4, 16])
def test_every_epoch_visits_every_sequence_once_in_another_order(bands: int):
    (stream,) = drawn([200], [200], bands, 3, PARTS)
    epochs = stream.reshape(3, 200)
    for epoch in epochs:
        assert np.array_equal(np.sort(epoch), np.arange(200))
    assert not np.array_equal(epochs[0], epochs[1]) and not np.array_equal(epochs[1], epochs[2])


def band_of(sequence: int, bands: int) -> int:
    """The band of a sequence by plain search."""
    for begin, end in itertools.pairwise(PARTS):
        if begin <= sequence < end:
            size = end - begin
            return next(band for band in range(bands) if sequence - begin < size * (band + 1) // bands)
    raise AssertionError


@pytest.mark.parametrize("epochs", [0.1, 0.35, 1.0, 2.5])
def test_an_epoch_goes_from_the_easy_to_the_hard_of_every_shard_and_a_part_of_one_takes_a_part_of_every_band(
    epochs: float,
):
    bands = 8
    (stream,) = drawn([200], [200], bands, epochs, PARTS)
    found = np.array([band_of(sequence, bands) for sequence in stream.tolist()])
    for first in range(0, len(found), 200):
        epoch = found[first : first + 200]
        assert np.array_equal(epoch, np.sort(epoch))
        counts = np.bincount(epoch, minlength=bands)
        whole = np.bincount([band_of(sequence, bands) for sequence in range(200)], minlength=bands)
        assert np.abs(counts - whole * len(epoch) / 200).max() <= 1
        assert len(set(stream[first : first + 200].tolist())) == len(epoch)


@pytest.mark.parametrize("bands", [1, 5])
def test_a_simulated_run_uses_the_same_part_in_every_epoch(bands: int):
    streams = drawn([200, 1000], [50, 10], bands, 4, ())
    for stream, used in zip(streams, (50, 10), strict=True):
        epochs = [set(stream[first : first + used].tolist()) for first in range(0, 4 * used, used)]
        assert all(epoch == epochs[0] and len(epoch) == used for epoch in epochs)
    assert max(streams[0]) > 100  # from everywhere, not the first ones


def test_a_short_run_repeats_as_often_as_the_full_one():
    components = [Component("small", 500), Component("big", 20_000)]
    phases = [OrderPhase(1.0, (0.2, 0.8))]
    full = MixtureOrder(components, phases, 10_000, 0)
    short = MixtureOrder(components, phases, 1_000, 0, fraction=0.1)
    assert (full.counts(10_000) / full.sizes).tolist() == pytest.approx((short.counts(1_000) / short.sizes).tolist())
    refs = short.lookup(0, 1_000)
    assert refs.epochs.max() == full.lookup(0, 10_000).epochs.max() == 3


def test_no_sequence_is_favoured_by_its_place_in_an_epoch():
    """Mean place of each sequence over many epochs, and the correlation of neighbours in one."""
    (stream,) = drawn([101], [101], 1, 400)
    places = np.argsort(stream.reshape(400, 101), axis=1)
    means = places.mean(axis=0)
    assert abs(means.mean() - 50) < 1e-9
    assert np.abs(means - 50).max() < 6 * 29.2 / np.sqrt(400)  # standard deviation of a uniform place: 29.2
    pairs = np.corrcoef(stream[:-1], stream[1:])[0, 1]
    assert abs(pairs) < 5 / np.sqrt(len(stream))
    fixed = (stream.reshape(400, 101) == np.arange(101)).sum()
    assert abs(fixed - 400) < 6 * 20  # a random permutation has one fixed point on average


def test_a_component_too_large_for_bands_is_named():
    with pytest.raises(ValueError, match="'huge' has 2147483648 sequences"):
        Draws([Component("huge", LARGEST_RANKED)], [5], 2, 0)
    Draws([Component("huge", LARGEST_RANKED)], [5], 1, 0)
