"""Bits per byte equal nats / (ln 2 · bytes), over everything or over the part that was read."""

from __future__ import annotations

import math
from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest

from marin.evaluation.heldout import byte_lengths, overall, score_source
from marin.tokens.tokenizer.codec import TextCodec

VOCAB = 10
LENGTHS = np.array([0, 1, 2, 3, 4, 1, 1, 1, 0, 0])  # id 0 is a special token, 8 and 9 pad the vocabulary


def batches(stream: list[int], length: int, starts: set[int]):
    """One sequence a batch, as a packer cuts a stream; a target that starts a document is masked."""
    for first in range(0, len(stream) - 1, length):
        tokens = (stream[first : first + length] + [0] * length)[:length]
        targets = (stream[first + 1 : first + 1 + length] + [0] * length)[:length]
        real = [first + 1 + i < len(stream) and first + 1 + i not in starts for i in range(length)]
        zeros = np.zeros((1, length), dtype=np.int64)
        yield SimpleNamespace(
            tokens=np.array([tokens]),
            targets=np.array([targets]),
            segments=zeros.astype(np.int32),
            positions=zeros,
            loss_mask=np.array([real]),
        )


def uniform_model(tokens, segments, positions, targets, loss_mask):
    count = loss_mask.sum()
    return SimpleNamespace(nll_sum=count.double() * math.log(VOCAB), token_count=count)


def score(stream, starts, *, bos_id, sequences=None):
    return score_source(
        "web",
        uniform_model,
        islice(batches(stream, 4, starts), sequences),
        total_tokens=len(stream),
        total_bytes=int(LENGTHS[stream].sum()),
        byte_lengths=LENGTHS,
        bos_id=bos_id,
    )


def test_with_bos_every_token_of_text_is_scored_once():
    stream = [0, 1, 2, 3, 0, 4, 5, 6, 7, 1]  # two documents, each after its BOS
    row = score(stream, {0, 4}, bos_id=0)
    assert (row.tokens, row.bytes, row.complete) == (8, 1 + 2 + 3 + 4 + 1 + 1 + 1 + 1, True)
    assert row.nats_per_token == pytest.approx(math.log(VOCAB))
    assert row.bits_per_byte == pytest.approx(8 * math.log2(VOCAB) / row.bytes)


def test_without_bos_the_first_token_of_each_document_is_charged_as_a_guess():
    stream = [1, 2, 3, 0, 4, 5, 6, 7, 0]  # two documents, each before its EOS
    row = score(stream, {0, 4}, bos_id=None)
    assert row.tokens == 9
    assert row.bits_per_byte == pytest.approx(9 * math.log2(VOCAB) / row.bytes)


@pytest.mark.parametrize("bos_id", [None, 0])
def test_a_part_of_a_source_counts_the_bytes_of_that_part(bos_id):
    stream = [0, 1, 2, 3, 4, 5, 6, 7] * 5
    starts = set(range(0, 40, 8))
    row = score(stream, starts, bos_id=bos_id, sequences=2)
    read = stream[:9]  # two sequences of four targets, and the token before the first
    assert not row.complete
    assert row.bytes == LENGTHS[read].sum()
    assert row.tokens == (9 if bos_id is None else 7)
    assert row.bits_per_byte == pytest.approx(row.tokens * math.log2(VOCAB) / row.bytes)


def test_all_sources_together_are_weighted_by_bytes():
    one = score([0, 1, 2, 3, 0, 4], {0, 4}, bos_id=0)
    two = score([0, 4, 4, 4], {0}, bos_id=0)
    nats = one.nats_per_token * one.tokens + two.nats_per_token * two.tokens
    assert overall([one, two]) == pytest.approx(nats / math.log(2) / (one.bytes + two.bytes))
    assert overall([]) is None


def test_a_source_without_text_is_refused():
    with pytest.raises(ValueError, match="'web' hold 1 tokens, 0 of them with a loss, and 0 bytes"):
        score([0], {0}, bos_id=0)


def test_byte_lengths_of_a_byte_level_bpe_add_up_to_the_bytes_of_the_text():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    text = "Über die Brücke, naïve façade — 東京 🙂 and plain words and plain words\n\tindented\r\n"
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<|bos|>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([text], trainer)
    lengths = byte_lengths(TextCodec(tokenizer.to_str()), 320)
    ids = tokenizer.encode(text).ids
    assert int(lengths[ids].sum()) == len(text.encode())
    assert lengths[0] == 0
    assert lengths[300:].sum() == 0
