"""Packing by plans, as a run reads it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from marin.execution import StepError, materialise
from marin.tokens.mixture.config import MixtureConfig
from marin.tokens.mixture.loader import MixtureLoader
from marin.tokens.mixture.steps import build_mixture
from marin.tokens.shards.config import PackingConfig
from tests.tokens.building import written_shards

LENGTH = 32
POLICIES = ("truncate", "best_fit")


def rows(seed: int = 0, count: int = 60) -> tuple[tuple[int, ...], ...]:
    """Documents whose tokens all differ: token = 1 + its place in the whole."""
    sizes = np.random.default_rng(seed).lognormal(2.8, 1.0, count).astype(int) + 1
    ends = np.cumsum(sizes)
    return tuple(tuple(range(1 + end - size, 1 + end)) for size, end in zip(sizes.tolist(), ends.tolist(), strict=True))


def load(prefix: Path, policy: str, epochs: int = 1, **options) -> MixtureLoader:
    handle = written_shards(rows(), 17, 4096, "a", PackingConfig(policy, LENGTH), options.pop("order_by", "stored"))
    mixture = materialise(build_mixture({"a": handle}, MixtureConfig(**options)), prefix=str(prefix))
    sequences = sum(shard.packing.sequences for shard in mixture.components["a"].shards if shard.packing)
    return MixtureLoader(mixture, LENGTH, 0, epochs * sequences)


@pytest.mark.parametrize("policy", POLICIES)
def test_emitted_and_dropped_tokens_add_up_in_every_epoch(tmp_path: Path, policy: str):
    loader = load(tmp_path, policy, epochs=2)
    size = loader.total_sequences // 2
    total = sum(map(len, rows()))
    dropped = loader.dropped_tokens()["a"]
    assert (dropped > 0) == (policy == "truncate")
    for epoch in range(2):
        batch = loader.batch(epoch * size, size)
        emitted = Counter(batch.tokens[batch.tokens > 0].tolist())
        assert set(emitted.values()) == {1}
        assert len(emitted) + dropped == total
        assert int((batch.tokens == 0).sum()) == loader.report()["components"][0]["padded_places"]


@pytest.mark.parametrize("policy", POLICIES)
def test_segments_positions_and_loss_are_those_of_the_documents(tmp_path: Path, policy: str):
    owner = {token: number for number, document in enumerate(rows()) for token in document}
    loader = load(tmp_path, policy)
    batch = loader.batch(0, loader.total_sequences)
    for row in range(len(batch.tokens)):
        tokens, targets = batch.tokens[row].tolist(), batch.targets[row].tolist()
        segment, position = -1, 0
        for place, (token, target) in enumerate(zip(tokens, targets, strict=True)):
            before = owner.get(tokens[place - 1], -1) if place else None
            same = before == owner.get(token, -1)
            segment, position = (segment, position + 1) if same else (segment + 1, 0)
            assert (batch.segments[row, place], batch.positions[row, place]) == (segment, position)
            assert batch.loss_mask[row, place] == (token > 0 and owner.get(target, -2) == owner[token])
            if batch.loss_mask[row, place]:
                assert target == token + 1
        assert segment + 1 - (0 in tokens) == len(loader.documents(row))


def test_best_fit_keeps_every_document_that_fits_whole_and_loses_no_target(tmp_path: Path):
    loader = load(tmp_path, "best_fit")
    batch = loader.batch(0, loader.total_sequences)
    assert int(batch.loss_mask.sum()) == sum(len(document) - 1 for document in rows())
    for document in rows():
        if len(document) <= LENGTH:
            assert int(np.isin(batch.tokens, document).any(axis=1).sum()) == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_the_stream_is_the_same_for_any_split_of_it(tmp_path: Path, policy: str):
    loader = load(tmp_path, policy, epochs=3)
    whole = loader.batch(0, loader.total_sequences)
    place = 0
    for count in (1, 7, 2, 19):
        part = loader.batch(place, count)
        for name in vars(part):
            assert np.array_equal(getattr(part, name), getattr(whole, name)[place : place + count])
        place += count


def test_a_run_of_another_sequence_length_is_refused(tmp_path: Path):
    loader = load(tmp_path, "best_fit")
    with pytest.raises(StepError, match="packed into sequences of 32, the run reads 64"):
        MixtureLoader(loader.mixture, 64, 0, 10)


def test_cells_packed_differently_and_settings_that_do_not_fit_are_refused(tmp_path: Path):
    best = written_shards(rows(), 17, 4096, "a", PackingConfig("best_fit", LENGTH))
    plain = written_shards(rows(), 17, 4096, "b")
    with pytest.raises(StepError, match=r"cell 'b' is packed as .*carry_on.*, cell 'a' as .*best_fit"):
        materialise(build_mixture({"a": best, "b": plain}), prefix=str(tmp_path))
    with pytest.raises(StepError, match="tail is 'drop', but the cells are packed as 'best_fit'"):
        materialise(build_mixture({"a": best}, MixtureConfig(tail="drop")), prefix=str(tmp_path))
    with pytest.raises(StepError, match="the documents of cell 'b' are in no order of difficulty"):
        materialise(build_mixture({"b": plain}, MixtureConfig(difficulty_bands=4)), prefix=str(tmp_path))


def test_a_damaged_plan_stops_the_run_by_name(tmp_path: Path):
    loader = load(tmp_path, "best_fit")
    path = loader.mixture.components["a"].local("00001.plan")
    data = path.read_bytes()
    path.write_bytes(data[:-8] + b"\xff" * 8)
    fresh = MixtureLoader(loader.mixture, LENGTH, 0, loader.total_sequences)
    with pytest.raises(
        StepError, match=r"00001 of split=train source=a: 00001.plan is not what was written.*redo the tokenize"
    ):
        fresh.batch(0, loader.total_sequences)


def test_an_epoch_goes_from_easy_to_hard_in_every_shard(tmp_path: Path):
    ordered = tuple(sorted(rows(count=400), key=len))
    documents = tuple(document for first in range(3) for document in ordered[first::3])  # three shards, each in order
    per_shard = len(ordered[0::3])
    sizes = {token: len(document) for document in documents for token in document}
    handle = written_shards(documents, per_shard, 1 << 17, "a", order_by="length")
    mixture = materialise(build_mixture({"a": handle}, MixtureConfig(difficulty_bands=4)), prefix=str(tmp_path))
    total = MixtureLoader(mixture, LENGTH, 0, 1).report()["components"][0]["sequences"]
    for part in (1.0, 0.5):
        loader = MixtureLoader(mixture, LENGTH, 0, round(part * total))
        batch = loader.batch(0, loader.total_sequences)
        hard = [np.mean([sizes[token] for token in row.tolist() if token]) for row in batch.tokens]
        quarters = [np.mean(found) for found in np.array_split(hard, 4)]
        assert quarters == sorted(quarters) and quarters[3] > 2 * quarters[0]
        inside = np.corrcoef(np.arange(len(hard) // 4), hard[: len(hard) // 4])[0, 1]
        assert abs(inside) < 0.5  # shuffled within a band
