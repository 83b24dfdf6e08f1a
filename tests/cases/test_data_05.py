"""data-05: every document once an epoch, in a new order each time, the same for any number of readers."""

from __future__ import annotations

import pytest

from marin.execution import materialise
from marin.tokens.mixture.artifacts import Mixture
from marin.tokens.mixture.batches import BatchChange, BatchSchedule, rank_requests
from marin.tokens.mixture.config import LoaderConfig, MixtureConfig, Phase
from marin.tokens.mixture.loader import Batch, MixtureLoader
from marin.tokens.mixture.prefetch import Prefetcher
from marin.tokens.mixture.steps import build_mixture
from marin.tokens.shards.config import PackingConfig
from tests.tokens.building import written_shards

DOCUMENTS, LENGTH, EPOCHS = 23, 4, 3


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Mixture:
    rows = tuple((100 + index,) * LENGTH for index in range(DOCUMENTS))
    handle = build_mixture({"tiny": written_shards(rows, 6, 4096, "tiny")})
    return materialise(handle, prefix=str(tmp_path_factory.mktemp("data05")))


def read(mixture: Mixture, readers: int, seed: int = 7) -> list[int]:
    """First tokens of the run, as ``readers`` loaders read it in turns; with 0, one reader in one go."""
    total = DOCUMENTS * EPOCHS
    loaders = [MixtureLoader(mixture, LENGTH, seed, total) for _ in range(max(1, readers))]
    if readers == 0:
        return loaders[0].batch(0, total).tokens[:, 0].tolist()
    ids = []
    for place in range(total):
        ids += loaders[place % readers].batch(place, 1).tokens[:, 0].tolist()
    return ids


def test_each_epoch_shows_every_document_once_in_a_new_order(mixture: Mixture):
    stream = read(mixture, 0)
    epochs = [stream[first : first + DOCUMENTS] for first in range(0, len(stream), DOCUMENTS)]
    for epoch in epochs:
        assert sorted(epoch) == list(range(100, 100 + DOCUMENTS))
    assert len({tuple(epoch) for epoch in epochs}) == EPOCHS


@pytest.mark.parametrize("readers", [1, 2, 3])
def test_any_number_of_readers_gives_the_same_stream(mixture: Mixture, readers: int):
    assert read(mixture, readers) == read(mixture, 0)


def test_the_seed_fixes_the_order(mixture: Mixture):
    assert read(mixture, 0) == read(mixture, 0)
    assert read(mixture, 0, seed=8) != read(mixture, 0)


PHASES = (
    Phase("main", 0.6, "shares", {"a": 0.7, "b": 0.299, "c": 0.001}),
    Phase("late", 0.4, "shares", {"a": 0.2, "b": 0.5, "c": 0.3}, ramp=0.3),
)
BATCHES = BatchSchedule(16, (BatchChange(7, 8), BatchChange(12, 48)))
STEPS = 20


def curriculum(prefix: str, packing: PackingConfig) -> Mixture:
    """Three cells in several shards, with a ramp between phases, from easy to hard."""
    cells = {}
    for name, first, count in (("a", 100, 300), ("b", 1100, 200), ("c", 2100, 12)):
        rows = tuple((first + index,) * (1 + index % 13) for index in range(count))
        cells[name] = written_shards(rows, 70, 4096, name, packing, "length")
    return materialise(build_mixture(cells, MixtureConfig(PHASES, difficulty_bands=3)), prefix=prefix)


def sequences(batch: Batch) -> list[tuple[bytes, ...]]:
    return [tuple(getattr(batch, name)[row].tobytes() for name in vars(batch)) for row in range(len(batch.tokens))]


@pytest.mark.parametrize("packing", [PackingConfig(), PackingConfig("best_fit", 8)], ids=["carry on", "best fit"])
def test_gangs_of_two_and_eight_resumed_at_odd_places_read_the_stream_of_one(tmp_path, packing: PackingConfig):
    mixture = curriculum(str(tmp_path), packing)
    total = BATCHES.first(STEPS)
    alone = MixtureLoader(mixture, 8, 7, total)
    expected = [row for place in range(total) for row in sequences(alone.batch(place, 1))]
    read: list[tuple[bytes, ...]] = []
    step = 0
    for ranks, micro, until in ((2, 3, 5), (8, None, 6), (1, 5, 11), (8, 1, 13), (2, 7, 17), (4, 2, STEPS)):
        loaders = [
            Prefetcher(
                MixtureLoader(mixture, 8, 7, total),
                rank_requests(BATCHES, step, STEPS, rank, ranks, micro),
                LoaderConfig(ahead=3, threads=2),
            )
            for rank in range(ranks)
        ]
        requests = [list(rank_requests(BATCHES, step, until, rank, ranks, micro)) for rank in range(ranks)]
        parts: dict[int, list[tuple[bytes, ...]]] = {}
        for loader, asked in zip(loaders, requests, strict=True):
            for first, count in asked:
                parts[first] = sequences(loader.batch(first, count))
            assert loader.take().unexpected == 0
            loader.close()
        read += [row for first in sorted(parts) for row in parts[first]]
        step = until
        assert len(read) == BATCHES.first(step)
    assert read == expected
