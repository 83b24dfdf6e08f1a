from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest

from marin.execution import StepError, materialise
from marin.tokens.mixture.artifacts import Mixture
from marin.tokens.mixture.config import MixtureConfig, Phase
from marin.tokens.mixture.curve import OrderPhase
from marin.tokens.mixture.draws import Component
from marin.tokens.mixture.loader import Batch, MixtureLoader
from marin.tokens.mixture.order import MixtureOrder
from marin.tokens.mixture.steps import build_mixture
from tests.tokens.building import written_shards

LENGTH = 8
TOTAL = 400
PHASES = (
    Phase("main", 0.8, "shares", {"a": 0.5, "b": 0.4, "c": 0.1}),
    Phase("late", 0.2, "shares", {"a": 0.1, "b": 0.2, "c": 0.7}),
)


def cells():
    documents = {
        name: tuple(tuple([first + index] * (3 + index % 11)) for index in range(count))
        for name, first, count in (("a", 100, 120), ("b", 300, 90), ("c", 500, 11))
    }
    return {name: written_shards(rows, 40, 4096, name) for name, rows in documents.items()}


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Mixture:
    return materialise(build_mixture(cells(), MixtureConfig(PHASES)), prefix=str(tmp_path_factory.mktemp("mixture")))


def rows_of(batch: Batch) -> list[tuple[bytes, ...]]:
    return [tuple(getattr(batch, name)[row].tobytes() for name in vars(batch)) for row in range(len(batch.tokens))]


@pytest.fixture(scope="module")
def stream(mixture: Mixture) -> list[tuple[bytes, ...]]:
    """The run as one rank reads it, one sequence at a time."""
    loader = MixtureLoader(mixture, LENGTH, seed=3, total_sequences=TOTAL)
    return [rows_of(loader.batch(place, 1))[0] for place in range(TOTAL)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_any_number_of_ranks_reads_the_stream_of_one(mixture: Mixture, stream: list, ranks: int):
    loaders = [MixtureLoader(mixture, LENGTH, seed=3, total_sequences=TOTAL) for _ in range(ranks)]
    batch = 2 * ranks
    read = []
    for step in range(TOTAL // batch):
        for rank, loader in enumerate(loaders):
            read += rows_of(loader.batch(step * batch + rank * batch // ranks, batch // ranks))
    assert read == stream[: len(read)]


def test_a_resumed_run_goes_on_with_another_world_size_and_batch(mixture: Mixture, stream: list):
    read, place = [], 0
    for ranks, batch, steps in ((2, 6, 7), (1, 5, 3), (3, 9, 4), (8, 16, 11), (1, 1, 5)):
        loaders = [MixtureLoader(mixture, LENGTH, seed=3, total_sequences=TOTAL) for _ in range(ranks)]
        for _ in range(steps):
            for rank, loader in enumerate(loaders):
                first, end = rank * batch // ranks, (rank + 1) * batch // ranks
                read += rows_of(loader.batch(place + first, end - first))
            place += batch
    assert read == stream[:place]


def test_the_stream_survives_pickling_and_changes_with_the_seed(mixture: Mixture, stream: list):
    loader = MixtureLoader(mixture, LENGTH, seed=3, total_sequences=TOTAL)
    copy = pickle.loads(pickle.dumps(loader))
    assert rows_of(copy.batch(150, 60)) == stream[150:210]
    other = MixtureLoader(mixture, LENGTH, seed=4, total_sequences=TOTAL).batch(150, 60)
    assert np.array_equal(other.components, loader.batch(150, 60).components)
    assert rows_of(other) != stream[150:210]


def test_every_sequence_of_a_component_appears_once_an_epoch_in_an_order_of_its_own(mixture: Mixture):
    loader = MixtureLoader(mixture, LENGTH, seed=3, total_sequences=TOTAL)
    batch = loader.batch(0, TOTAL)
    for index, _ in enumerate(loader.names):
        mine = batch.components == index
        size = int(loader.order.sizes[index])
        drawn = batch.sequences[mine]
        assert np.array_equal(batch.epochs[mine], np.arange(mine.sum()) // size)
        passes = [drawn[first : first + size] for first in range(0, len(drawn), size)]
        for complete in passes[:-1]:
            assert np.array_equal(np.sort(complete), np.arange(size))
        assert len(set(passes[-1].tolist())) == len(passes[-1])
        for left, right in itertools.pairwise(passes):
            assert left[: len(right)].tolist() != right.tolist()
    assert loader.epochs()["c"] > 3


def test_phases_realise_their_shares_within_two_sequences(mixture: Mixture):
    loader = MixtureLoader(mixture, LENGTH, seed=3, total_sequences=TOTAL)
    components = loader.batch(0, TOTAL).components
    report = loader.report()
    assert [(phase["first"], phase["end"]) for phase in report["phases"]] == [(0, 320), (320, 400)]
    for row, index in zip(report["components"], range(3), strict=True):
        assert row["drawn"] == (components == index).sum()
        for phase, (first, end) in enumerate(((0, 320), (320, 400))):
            count = (components[first:end] == index).sum()
            assert row["realised"][phase] == count / (end - first)
            assert abs(count - row["asked"][phase] * (end - first)) < 2


def test_counts_before_any_place_have_a_closed_form(mixture: Mixture):
    loader = MixtureLoader(mixture, LENGTH, seed=3, total_sequences=TOTAL)
    components = loader.batch(0, TOTAL).components
    for place in (0, 1, 77, 319, 320, 321, 400):
        assert np.array_equal(loader.order.counts(place), np.bincount(components[:place], minlength=3))


def test_no_loss_crosses_a_document_and_positions_start_anew(mixture: Mixture):
    batch = MixtureLoader(mixture, LENGTH, seed=3, total_sequences=TOTAL).batch(0, TOTAL)
    same = batch.tokens == batch.targets  # each document repeats one id of its own
    assert np.array_equal(batch.loss_mask, same & (batch.tokens > 0))
    first = np.concatenate([np.ones((TOTAL, 1), bool), batch.tokens[:, 1:] != batch.tokens[:, :-1]], axis=1)
    assert np.array_equal(batch.positions == 0, first)
    assert np.array_equal(batch.segments, np.cumsum(first, axis=1) - 1)


def test_places_outside_the_run_are_refused(mixture: Mixture):
    loader = MixtureLoader(mixture, LENGTH, seed=3, total_sequences=TOTAL)
    for first, count in ((-1, 2), (TOTAL - 1, 2), (TOTAL, 1)):
        with pytest.raises(IndexError, match="not within the run of 400"):
            loader.batch(first, count)
    assert loader.batch(TOTAL, 0).tokens.shape == (0, LENGTH)


def test_a_dropped_tail_never_pads(tmp_path):
    mixture = materialise(build_mixture(cells(), MixtureConfig(PHASES, tail="drop")), prefix=str(tmp_path))
    loader = MixtureLoader(mixture, LENGTH, seed=0, total_sequences=TOTAL)
    assert loader.batch(0, TOTAL).tokens.min() > 0
    assert loader.dropped_tokens() == {
        name: shards.tokens - LENGTH * ((shards.tokens - 1) // LENGTH) for name, shards in mixture.components.items()
    }
    with pytest.raises(StepError, match="'a' has a share of the mixture but not one whole sequence"):
        MixtureLoader(mixture, 4096, seed=0, total_sequences=TOTAL)


def test_serial_order_within_a_component_is_shuffled():
    components = [Component("a", 50_000), Component("b", 30_000)]
    order = MixtureOrder(components, [OrderPhase(1.0, (0.6, 0.4))], 80_000, seed=1)
    refs = order.lookup(0, 80_000)
    for component in (0, 1):
        drawn = refs.sequences[refs.components == component].astype(float)
        for lag in (1, 2, 5):
            assert abs(np.corrcoef(drawn[:-lag], drawn[lag:])[0, 1]) < 0.03
        halves = drawn[: len(drawn) // 2].mean() / drawn.mean()
        assert abs(halves - 1) < 0.02
