"""The parts of grading against plain, slow answers."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.data.cells.classifier import (
    LinearModel,
    buckets_of,
    edges_of,
    parts_of,
    platt,
    probability,
    unit_counts,
)
from marin.data.cells.config import SIGNAL_COLUMNS
from marin.data.cells.ngrams import FOLDED, HASHED, folded, hashed_counts, places_of, words_of
from marin.data.cells.topics import TopicVectors, inverse_frequencies, weighted

TEXTS = ["the cat and the dog", "the cat", "", "日本語の文", "one_two three-four 5"]


def test_words_and_pairs_are_counted_at_their_places() -> None:
    counts = hashed_counts(TEXTS)
    assert counts.shape == (5, HASHED)
    assert [int(row.sum()) for row in counts] == [9, 3, 0, 9, 9]
    (the, cat) = places_of(["the", "cat"])
    assert counts[0, the] == 2 and counts[1, the] == 1 and counts[1, cat] == 1
    assert words_of(TEXTS[3]) == ["日", "本", "語", "の", "文"]
    assert words_of(TEXTS[4]) == ["one", "two", "three", "four", "5"]


def test_rows_do_not_depend_on_their_batch() -> None:
    together = hashed_counts(TEXTS)
    for number, text in enumerate(TEXTS):
        assert (hashed_counts([text]) != together[number]).nnz == 0


def test_folding_adds_up_what_falls_together() -> None:
    counts = sp.csr_matrix(([1.0, 2.0, 4.0], ([0, 0, 0], [3, FOLDED + 3, FOLDED + 4])), shape=(1, HASHED))
    small = folded(counts)
    assert small[0, 3] == 3 and small[0, 4] == 4 and small.sum() == counts.sum()


def test_weights_are_tf_idf_of_unit_length() -> None:
    counts = hashed_counts(["a a b", "a c"])
    idf = inverse_frequencies(counts)
    a, b, ab, aa, c, ac = (place % FOLDED for place in places_of(["a", "b", "a b", "a a", "c", "a c"]))
    rare, common = math.log(3 / 2) + 1, math.log(3 / 3) + 1
    expected = {a: (1 + math.log(2)) * common, b: rare, aa: rare, ab: rare}
    length = math.sqrt(sum(value**2 for value in expected.values()))
    row = weighted(counts, idf)[0]
    assert {int(place): float(value) for place, value in zip(row.indices, row.data, strict=True)} == pytest.approx(
        {place: value / length for place, value in expected.items()}, rel=1e-6
    )
    assert {c, ac} <= set(weighted(counts, idf)[1].indices)


def test_a_document_goes_to_the_nearest_centre_and_of_equal_ones_to_the_first() -> None:
    generator = np.random.default_rng(3)
    centres = generator.normal(size=(5, 4)).astype(np.float32)
    centres[4] = centres[1]
    components = generator.normal(size=(4, FOLDED)).astype(np.float32)
    vectors = TopicVectors(np.ones(FOLDED, np.float32), components, centres)
    counts = hashed_counts([f"word{n} word{n * 7} other{n % 3}" for n in range(40)])
    topics, cosines = vectors.assign(counts)
    for row in range(40):
        dense = weighted(counts, vectors.idf)[row].toarray().ravel()
        latent = components.astype(float) @ dense
        latent /= np.linalg.norm(latent)
        distances = [np.linalg.norm(latent - centre) for centre in centres.astype(float)]
        assert topics[row] == int(np.argmin(np.round(distances, 9)))
        centre = centres[topics[row]].astype(float)
        assert cosines[row] == pytest.approx(latent @ centre / np.linalg.norm(centre), abs=1e-6)


def test_log_odds_are_the_weighted_sum_for_any_batch() -> None:
    generator = np.random.default_rng(5)
    width = len(SIGNAL_COLUMNS)
    model = LinearModel(
        words=generator.normal(size=HASHED),
        signals=generator.normal(size=width),
        means=generator.random(width),
        scales=generator.random(width) + 0.5,
        slope=1.7,
        intercept=-0.3,
    )
    counts = hashed_counts(TEXTS)
    signals = generator.random((5, width)) * 20
    together = model.log_odds(counts, signals)
    for row in range(5):
        dense = counts[row].toarray().ravel()
        damped = np.where(dense > 0, 1 + np.log(np.maximum(dense, 1)), 0)
        damped /= max(np.linalg.norm(damped), 1e-12)
        z = np.clip((signals[row] - model.means) / model.scales, -5, 5)
        expected = 1.7 * (damped @ model.words + z @ model.signals) - 0.3
        assert together[row] == pytest.approx(expected, abs=1e-6)
        assert model.log_odds(counts[row], signals[row : row + 1])[0] == together[row]


def test_probabilities_do_not_overflow() -> None:
    assert probability(np.array([-1e9, 0.0, 1e9])).tolist() == [0.0, 0.5, 1.0]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-50, 50), st.integers(1, 3)), min_size=1, max_size=40),
    st.integers(1, 6),
)
def test_edges_are_quantiles_of_the_documents_that_each_stands_for(values: list[tuple[int, int]], buckets: int) -> None:
    odds = np.array([value for value, _ in values], float)
    weights = np.array([weight for _, weight in values], float)
    edges = edges_of(odds, weights, buckets)
    full = sorted(value for value, weight in values for _ in range(weight))
    expected = [float(full[-(-number * len(full) // buckets) - 1]) for number in range(1, buckets)]
    assert list(edges) == expected


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=40, unique=True), st.integers(1, 5))
def test_buckets_of_distinct_values_are_of_equal_size_and_in_order(values: list[float], buckets: int) -> None:
    odds = np.array(values)
    edges = [edges_of(odds, np.ones(len(odds)), buckets)]
    found = buckets_of(odds, np.zeros(len(odds), int), edges)
    sizes = Counter(found.tolist())
    assert max(sizes[n] for n in range(buckets)) - min(sizes[n] for n in range(buckets)) <= 1
    assert (np.diff(found[np.argsort(odds)]) >= 0).all()


def test_each_topic_has_its_own_edges() -> None:
    found = buckets_of(np.array([1.0, 1.0, 3.0]), np.array([0, 1, 1]), [(0.0,), (2.0,)])
    assert found.tolist() == [1, 0, 1]
    assert edges_of(np.array([]), np.array([]), 3) == (0.0, 0.0)


def test_parts_depend_on_ids_alone_and_each_set_is_in_all_of_them() -> None:
    ids = [f"{n:032x}" for n in range(50)]
    labels = np.array([1] * 10 + [0] * 35 + [-1] * 5)
    parts = parts_of(ids, labels, 0)
    assert Counter(parts[labels == 1].tolist()) == {0: 6, 1: 2, 2: 2}
    assert Counter(parts[labels == 0].tolist()) == {0: 21, 1: 7, 2: 7}
    assert set(parts[labels == -1].tolist()) == {-1}
    assert parts_of(ids[::-1], labels[::-1], 0).tolist() == parts.tolist()[::-1]
    assert parts_of(ids, labels, 1).tolist() != parts.tolist()


def test_calibration_finds_the_curve_that_made_the_labels_and_never_turns_the_order() -> None:
    generator = np.random.default_rng(7)
    values = generator.normal(size=20_000)
    labels = (generator.random(20_000) < 1 / (1 + np.exp(-(2.0 * values - 1.0)))).astype(int)
    slope, intercept = platt(values, labels)
    assert slope == pytest.approx(2.0, abs=0.1) and intercept == pytest.approx(-1.0, abs=0.1)
    assert platt(-values, labels)[0] > 0
    parted = platt(np.array([-1.0] * 20 + [1.0] * 20), np.array([0] * 20 + [1] * 20))
    # Platt's targets: 21/22 and 1/22, whose log odds are +-ln 21.
    assert parted == pytest.approx((math.log(21), 0.0), abs=0.02)


def test_unit_counts_have_length_one_and_stay_zero_without_words() -> None:
    lengths = np.sqrt(np.asarray(unit_counts(hashed_counts(TEXTS)).power(2).sum(axis=1)).ravel())
    assert lengths == pytest.approx([1, 1, 0, 1, 1])
