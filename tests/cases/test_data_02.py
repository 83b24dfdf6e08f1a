"""data-02: weights that cannot be meant are refused by name, others are normalised openly."""

from __future__ import annotations

import math

import numpy as np
import pytest

from marin.execution import StepError, materialise
from marin.tokens.mixture.config import MixtureConfig, Phase
from marin.tokens.mixture.loader import MixtureLoader
from marin.tokens.mixture.steps import build_mixture
from tests.tokens.building import written_shards

LENGTH = 8


def listed(weights: dict, **options) -> MixtureConfig:
    return MixtureConfig((Phase("all", 1.0, "shares", weights),), **options)


def load(prefix, config: MixtureConfig, total: int) -> MixtureLoader:
    cells = {
        name: written_shards(tuple((first + index,) * LENGTH for index in range(100)), 50, 4096, name)
        for name, first in (("a", 1000), ("b", 2000))
    }
    mixture = materialise(build_mixture(cells, config), prefix=str(prefix))
    return MixtureLoader(mixture, LENGTH, seed=0, total_sequences=total)


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        ({"a": 0, "b": 0}, "no cell has a weight above 0 .cells: a, b."),
        ({"a": -1, "b": 2}, "the weight of 'a' is -1"),
        ({"a": math.nan, "b": 1}, "the weight of 'a' is nan"),
        ({"a": "nan", "b": 1}, "the weight of 'a' is 'nan'"),
        ({"a": math.inf, "b": 1}, "the weight of 'a' is inf"),
    ],
)
def test_impossible_weights_are_refused_when_they_are_read(weights: dict, text: str):
    with pytest.raises(ValueError, match=text):
        listed(weights)


@pytest.mark.parametrize(
    ("weights", "text"),
    [({"a": 1}, "cell 'b' has no weight"), ({"a": 1, "b": 1, "c": 1}, "no such cell 'c'; cells are a, b")],
)
def test_missing_and_unknown_cells_are_named(tmp_path, weights: dict, text: str):
    with pytest.raises(ValueError, match=text):
        listed(weights).check_cells(["a", "b"])
    with pytest.raises(StepError, match=text):
        load(tmp_path, listed(weights), 10)


@pytest.mark.parametrize(
    ("weights", "share"), [({"a": 0, "b": 1}, 0.0), ({"a": 3, "b": 1}, 0.75), ({"a": 0.3, "b": 0.2}, 0.6)]
)
@pytest.mark.filterwarnings("error")
def test_other_weights_are_normalised_and_realised(tmp_path, weights: dict, share: float):
    components = load(tmp_path, listed(weights), 4000).batch(0, 4000).components
    assert abs(int((components == 0).sum()) - share * 4000) <= 1
    if not math.isclose(sum(weights.values()), 1):
        with pytest.raises(ValueError, match="sum to"):
            listed(weights, normalise=False)


def test_running_out_repeats_and_says_how_often(tmp_path):
    loader = load(tmp_path, listed({"a": 0.999, "b": 0.001}), 200)
    batch = loader.batch(0, 200)
    report = {row["name"]: row for row in loader.report()["components"]}
    drawn = int((batch.components == 0).sum())
    assert report["a"]["drawn"] == drawn
    assert report["a"]["epochs"] == drawn / 100 > 1.9
    assert np.array_equal(np.bincount(batch.sequences[batch.components == 0]), [2] * 100) == (drawn == 200)


def test_running_out_stops_the_run_before_it_starts_when_it_is_set_so(tmp_path):
    with pytest.raises(StepError, match=r"more than 1 epochs of these components: a (1\.99|2\.00)"):
        load(tmp_path, listed({"a": 0.999, "b": 0.001}, exhausted="stop"), 200)
    load(tmp_path, listed({"a": 0.999, "b": 0.001}, exhausted="stop"), 100)
