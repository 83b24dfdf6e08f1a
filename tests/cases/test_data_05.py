"""data-05: every document once an epoch, in a new order each time, the same for any number of readers."""

from __future__ import annotations

import pytest

from marin.execution import materialise
from marin.tokens.mixture.artifacts import Mixture
from marin.tokens.mixture.loader import MixtureLoader
from marin.tokens.mixture.steps import build_mixture
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
