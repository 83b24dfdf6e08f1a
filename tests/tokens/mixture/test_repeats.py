from __future__ import annotations

import numpy as np
import pytest

from marin.execution import materialise
from marin.tokens.mixture.config import MixtureConfig, RepeatMask
from marin.tokens.mixture.loader import MixtureLoader
from marin.tokens.mixture.packing import packed_batches
from marin.tokens.mixture.repeats import repeated_targets
from marin.tokens.mixture.steps import build_mixture
from tests.tokens.building import make_shards, written_shards


def plainly(stream: list[tuple[int, int]], mask: RepeatMask) -> set[int]:
    """Places of a stream of (token, document) that continue a repetition, found by trying every stretch."""
    found = set()
    for period in range(1, mask.longest_period + 1):
        for begin in range(len(stream)):
            end = begin + period
            while end < len(stream) and stream[end] == stream[end - period]:
                end += 1
            if end - begin >= period * mask.repeats:
                found |= set(range(begin + period, end))
    return found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("mask", [RepeatMask(3, 3), RepeatMask(1, 2), RepeatMask(7, 4)])
def test_repetitions_are_those_of_a_plain_search(tmp_path, seed: int, mask: RepeatMask):
    generator = np.random.default_rng(seed)
    documents = []
    for _ in range(12):
        pattern = generator.integers(1, 4, int(generator.integers(1, 8))).tolist()
        repeated = pattern * int(generator.integers(1, 9))
        documents.append(generator.integers(1, 4, 5).tolist() + repeated + generator.integers(1, 4, 9).tolist())
    shards = make_shards(tmp_path, documents)
    stream = [(token, number) for number, document in enumerate(documents) for token in document]
    for batch in packed_batches(shards, 40, 3):
        found = repeated_targets(batch.tokens, batch.targets, batch.segments, batch.loss_mask, mask)
        for row, sequence in enumerate(batch.sequences.tolist()):
            window = stream[sequence * 40 : sequence * 40 + 41]
            expected = {place - 1 for place in plainly(window, mask)}
            assert set(np.flatnonzero(found[row] & batch.loss_mask[row]).tolist()) == expected


def test_a_mixture_masks_repetitions_and_counts_them(tmp_path):
    rows = tuple((*range(100, 110), *([7, 8] * 40), *range(200, 230)) for _ in range(5))
    shards = written_shards(rows, 5, 4096, "a")
    plain, masked = (
        materialise(build_mixture({"a": shards}, MixtureConfig(repeat_mask=mask)), prefix=str(tmp_path))
        for mask in (None, RepeatMask(4, 20))
    )
    for total in (5, 2):
        left = MixtureLoader(plain, 120, 0, 5).batch(0, total)
        right = MixtureLoader(masked, 120, 0, 5).batch(0, total)
        assert np.array_equal(left.tokens, right.tokens)
        assert left.repeats.tolist() == [0] * total
        assert right.repeats.tolist() == [78] * total
        taken = left.loss_mask & ~right.loss_mask
        assert np.array_equal(taken.sum(axis=1), right.repeats)
        assert set(right.targets[taken].tolist()) == {7, 8}
