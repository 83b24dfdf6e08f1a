"""data-01: no token is lost in packing without being counted."""

from __future__ import annotations

from collections import Counter

import pytest

from marin.execution import materialise
from marin.tokens.mixture.config import MixtureConfig
from marin.tokens.mixture.loader import MixtureLoader
from marin.tokens.mixture.packing import packed_batches
from marin.tokens.mixture.sequences import sequence_count
from marin.tokens.mixture.steps import build_mixture
from tests.tokens.building import make_shards, written_shards

LENGTH = 16
SIZES = (0, 1, 3, 15, 16, 17, 33, 80, 2, 0, 5)


def documents() -> list[list[int]]:
    first = 1000
    made = []
    for size in SIZES:
        made.append(list(range(first, first + size)))
        first += size
    return made


def test_every_token_is_read_once_an_epoch_when_the_tail_is_padded(tmp_path):
    shards = make_shards(tmp_path, documents(), per_shard=3)
    assert (shards.tokens, shards.documents) == (172, 11)
    emitted = Counter(
        token
        for batch in packed_batches(shards, LENGTH, 4)
        for row, segment in zip(batch.tokens, batch.segments, strict=True)
        for token in row.tolist()
        if token
    )
    assert emitted == Counter(range(1000, 1172))


@pytest.mark.parametrize("tail", ["pad", "drop"])
def test_emitted_and_dropped_tokens_add_up_in_every_epoch(tmp_path, tail: str):
    cells = {"a": written_shards(tuple(map(tuple, documents())), 4, 4096, "a")}
    mixture = materialise(build_mixture(cells, MixtureConfig(tail=tail)), prefix=str(tmp_path))
    size = sequence_count(172, LENGTH, tail)
    loader = MixtureLoader(mixture, LENGTH, seed=0, total_sequences=3 * size)
    dropped = loader.dropped_tokens()["a"]
    assert dropped == (0 if tail == "pad" else 172 - 160)
    for epoch in range(3):
        batch = loader.batch(epoch * size, size)
        emitted = Counter(token for token in batch.tokens.ravel().tolist() if token)
        assert set(emitted.values()) == {1}
        assert len(emitted) + dropped == 172


def test_a_document_longer_than_a_sequence_is_split_not_cut(tmp_path):
    shards = make_shards(tmp_path, documents())
    read = [token for batch in packed_batches(shards, LENGTH, 1) for token in batch.tokens.ravel().tolist() if token]
    assert read == list(range(1000, 1172))
