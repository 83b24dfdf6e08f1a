"""MinHash bands against the Jaccard similarity that they stand for."""

from __future__ import annotations

import numpy as np
import pytest

from marin.data.filtering.config import MinHashConfig
from marin.data.filtering.minhash import _family, _least, band_keys, band_keys_of_all, content_hash, shingles

CONFIG = MinHashConfig()


def word_hashes(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 2**63, count, dtype=np.uint64)


def test_one_hash_a_band_collides_as_often_as_the_sets_overlap() -> None:
    config = MinHashConfig(shingle=1, bands=2000, rows=1)
    words = word_hashes(0, 300)
    one, other = band_keys(words[:200], config), band_keys(words[100:], config)
    assert one is not None
    assert other is not None
    assert float((one == other).mean()) == pytest.approx(1 / 3, abs=0.04)


def test_detection_follows_the_published_formula() -> None:
    assert CONFIG.detection(0.8) == pytest.approx(1 - (1 - 0.8**8) ** 14)
    assert CONFIG.detection(0.75) == pytest.approx(0.772, abs=0.001)


def test_a_text_shorter_than_a_shingle_is_one_shingle_and_differs_from_other_short_texts() -> None:
    assert len(shingles(word_hashes(1, 3), 5)) == 1
    keys = [band_keys(word_hashes(seed, 2), CONFIG) for seed in range(20)]
    assert len({key.tobytes() for key in keys if key is not None}) == 20


def test_a_text_without_words_has_neither_bands_nor_content() -> None:
    nothing = np.zeros(0, np.uint64)
    assert band_keys(nothing, CONFIG) is None
    assert content_hash(nothing) is None


def test_a_long_text_has_the_bands_of_its_set_of_shingles() -> None:
    words = word_hashes(2, 6000)
    one, twice = band_keys(words, CONFIG), band_keys(np.concatenate([words, words]), MinHashConfig())
    assert one is not None
    assert twice is not None
    assert int((one == twice).sum()) >= 10  # the seam adds four shingles to 5,996


def test_content_differs_with_the_order_of_words_and_with_what_follows_them() -> None:
    words = word_hashes(3, 10)
    assert content_hash(words) == content_hash(words.copy())
    assert content_hash(words) != content_hash(words[::-1])
    assert content_hash(words) != content_hash(words, "rest")


def test_bands_of_texts_hashed_together_are_those_of_each_alone() -> None:
    texts = [word_hashes(seed, count) for seed, count in enumerate((0, 1, 4, 5, 6, 300, 0, 2000, 3))]
    together = band_keys_of_all(texts, CONFIG)
    for text, keys in zip(texts, together, strict=True):
        alone = band_keys(text, CONFIG)
        assert (keys is None) == (alone is None)
        assert keys is None or np.array_equal(keys, alone)


def test_the_values_of_a_signature_are_as_good_as_independent() -> None:
    config = MinHashConfig(shingle=1, bands=112, rows=1)
    shares = []
    for seed in range(60):
        words = word_hashes(seed, 260)
        one, other = band_keys(words[:200], config), band_keys(words[60:], config)
        assert one is not None
        assert other is not None
        shares.append(float((one == other).mean()))
    similarity = 140 / 260
    # Sixty means of 112 draws each: their spread is that of independent draws.
    assert np.mean(shares) == pytest.approx(similarity, abs=0.03)
    assert np.std(shares) == pytest.approx((similarity * (1 - similarity) / 112) ** 0.5, rel=0.5)


def test_a_signature_is_the_least_value_of_every_function_over_the_shingles() -> None:
    config = MinHashConfig(shingle=2, bands=3, rows=2)
    # Longer than what is hashed at once, with texts of one shingle beside it.
    texts = [word_hashes(seed, count) for seed, count in ((1, 2), (2, 150_000), (3, 1), (4, 40), (5, 70_000))]
    factors, terms = (numbers[:, 0].tolist() for numbers in _family(6, config.seed))
    signatures = _least([shingles(text, 2) for text in texts], config)
    for at, text in enumerate(texts):
        numbers = [shingle >> 32 for shingle in shingles(text, 2).tolist()]
        for function, (factor, term) in enumerate(zip(factors, terms, strict=True)):
            least = min((factor * number + term) % 2**32 for number in numbers)
            assert signatures[function, at] == least
