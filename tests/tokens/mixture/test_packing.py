from __future__ import annotations

import numpy as np
import pytest

from marin.tokens.mixture.packing import pack, packed_batches
from marin.tokens.mixture.sequences import CarriedOn, TokenStream, sequence_count
from tests.tokens.building import make_shards


def plainly_packed(documents: list[list[int]], sequence: int, length: int) -> list[tuple[int, int, int, int, bool]]:
    """(token, target, segment, position, in the loss) of one sequence, token by token."""
    stream = [(token, number) for number, document in enumerate(documents) for token in document]
    rows = []
    segment, position = 0, 0
    for place in range(sequence * length, (sequence + 1) * length):
        token, owner = stream[place] if place < len(stream) else (0, None)
        if rows:
            before = stream[place - 1][1] if place - 1 < len(stream) else None
            same = owner == before
            segment, position = (segment, position + 1) if same else (segment + 1, 0)
        target, next_owner = stream[place + 1] if place + 1 < len(stream) else (0, None)
        rows.append((token, target, segment, position, owner is not None and owner == next_owner))
    return rows


@pytest.mark.parametrize("length", [1, 2, 5, 16, 64])
@pytest.mark.parametrize(("per_shard", "vocab_size"), [(1, 4096), (3, 70_000), (100, 4096)])
def test_packing_equals_a_token_by_token_one(tmp_path, length: int, per_shard: int, vocab_size: int):
    generator = np.random.default_rng(length)
    documents = [generator.integers(1, vocab_size, size).tolist() for size in generator.integers(1, 40, 13)]
    shards = make_shards(tmp_path, documents, per_shard=per_shard, vocab_size=vocab_size)
    total = sequence_count(shards.tokens, length)
    batches = list(packed_batches(shards, length, 3))
    assert sum(len(batch.tokens) for batch in batches) == total
    rows = [
        list(
            zip(
                *(part[row].tolist() for part in (b.tokens, b.targets, b.segments, b.positions, b.loss_mask)),
                strict=True,
            )
        )
        for b in batches
        for row in range(len(b.tokens))
    ]
    assert rows == [plainly_packed(documents, sequence, length) for sequence in range(total)]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 9])
def test_the_first_sequences_are_the_same_in_batches_of_any_size(tmp_path, size: int):
    shards = make_shards(tmp_path, [list(range(1, 30))])
    numbers = [n for batch in packed_batches(shards, 4, size, 5) for n in batch.sequences.tolist()]
    assert numbers == [0, 1, 2, 3, 4]
    assert sum(len(batch.tokens) for batch in packed_batches(shards, 4, size, 99)) == 8


def test_types_and_shapes_are_those_of_the_contract(tmp_path):
    (batch,) = packed_batches(make_shards(tmp_path, [[1, 2, 3, 4, 5]]), 4, 8)
    shapes = {name: (getattr(batch, name).dtype.name, getattr(batch, name).shape) for name in vars(batch)}
    assert shapes == {
        "tokens": ("int64", (2, 4)),
        "targets": ("int64", (2, 4)),
        "segments": ("int32", (2, 4)),
        "positions": ("int64", (2, 4)),
        "loss_mask": ("bool", (2, 4)),
        "components": ("int16", (2,)),
        "epochs": ("int64", (2,)),
        "sequences": ("int64", (2,)),
        "repeats": ("int32", (2,)),
    }
    assert batch.tokens.flags.c_contiguous
    assert batch.targets.flags.c_contiguous


def test_every_target_within_a_document_is_in_the_loss_once(tmp_path):
    documents = [[index + 1] * length for index, length in enumerate((3, 17, 1, 30, 8))]
    shards = make_shards(tmp_path, documents, per_shard=2)
    counted = sum(int(batch.loss_mask.sum()) for batch in packed_batches(shards, 7, 2))
    assert counted == sum(len(document) - 1 for document in documents)


def test_only_full_sequences_are_left_when_the_tail_is_dropped():
    for tokens in range(40):
        full = sequence_count(tokens, 8, "drop")
        assert full * 8 + 1 <= max(tokens, 1)
        assert (full + 1) * 8 + 1 > tokens
        assert sequence_count(tokens, 8) * 8 >= tokens


def test_rows_of_a_batch_do_not_touch_each_other(tmp_path):
    shards = make_shards(tmp_path, [[1] * 10, [2] * 6, [3] * 5])
    reader = CarriedOn(TokenStream.of(shards), [shards.tokens], 4)
    together = pack([(reader, index) for index in (5, 0, 3)], 4, 0)
    for row, index in enumerate((5, 0, 3)):
        alone = pack([(reader, index)], 4, 0)
        for name in ("tokens", "targets", "segments", "positions", "loss_mask"):
            assert np.array_equal(getattr(together, name)[row], getattr(alone, name)[0])
