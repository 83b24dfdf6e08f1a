"""Bits per byte over held-out token shards, packed as for training.

bits per byte = nats / (ln 2 · bytes of text). Every token is charged: where training puts no BOS before documents,
nothing precedes a document's first token, and it is charged as a uniform guess, as everywhere in this room.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from marin.evaluation.artifacts import SourceScore


class PackedBatch(Protocol):
    """The part of a packed batch that the loss reads: arrays [B, S]."""

    @property
    def tokens(self) -> NDArray[np.int64]: ...
    @property
    def targets(self) -> NDArray[np.int64]: ...
    @property
    def segments(self) -> NDArray[np.int32]: ...
    @property
    def positions(self) -> NDArray[np.int64]: ...
    @property
    def loss_mask(self) -> NDArray[np.bool_]: ...


class Sums(Protocol):
    """Sums over the real tokens of a batch."""

    @property
    def nll_sum(self) -> Tensor: ...
    @property
    def token_count(self) -> Tensor: ...


class LossModel(Protocol):
    """A model that sums the loss of packed documents."""

    def __call__(
        self, tokens_BT: Tensor, segments_BT: Tensor, positions_BT: Tensor, targets_BT: Tensor, loss_mask_BT: Tensor, /
    ) -> Sums: ...


@torch.no_grad()
def score_source(
    source: str,
    model: LossModel,
    batches: Iterable[PackedBatch],
    *,
    total_tokens: int,
    total_bytes: int,
    byte_lengths: NDArray[np.int64],
    bos_id: int | None,
    device: str = "cpu",
) -> SourceScore:
    """Compression of one source over the sequences in `batches`: all of its sequences, or its first ones.

    `total_tokens` and `total_bytes` are the counts of the whole source; `byte_lengths[id]` the bytes of text behind a
    token id, 0 for a special one. Raises `ValueError` for a source without text.
    """
    nats = 0.0
    scored = read = partial_bytes = 0
    for batch in batches:
        if not read:
            partial_bytes += int(byte_lengths[batch.tokens[0, 0]])
        sums = model(
            torch.from_numpy(batch.tokens).to(device),
            torch.from_numpy(batch.segments).to(device),
            torch.from_numpy(batch.positions).to(device),
            torch.from_numpy(batch.targets).to(device),
            torch.from_numpy(batch.loss_mask).to(device),
        )
        nats += float(sums.nll_sum)
        scored += int(sums.token_count)
        read += batch.targets.size
        partial_bytes += int(byte_lengths[batch.targets].sum())
    return compression(
        source,
        nats,
        scored,
        read,
        total_tokens=total_tokens,
        total_bytes=total_bytes,
        partial_bytes=partial_bytes,
        vocab_size=len(byte_lengths),
        bos_id=bos_id,
    )


def compression(
    source: str,
    nats: float,
    scored: int,
    read: int,
    *,
    total_tokens: int,
    total_bytes: int,
    partial_bytes: int,
    vocab_size: int,
    bos_id: int | None,
) -> SourceScore:
    """The score of a source of which `read` targets were read, padding included, and `scored` have a loss that sums to
    `nats`.

    `partial_bytes` is the text behind what was read, where that is not the whole source. Raises `ValueError` when there
    is nothing to score.
    """
    # The first token of the stream is no target, and the last sequence is padded: neither counts as read.
    complete = read + 1 >= total_tokens
    covered = total_tokens if complete else read + 1
    size = total_bytes if complete else partial_bytes
    if not scored or not size:
        raise ValueError(
            f"the held-out shards of {source!r} hold {total_tokens} tokens, {scored} of them with a loss, and {size} "
            "bytes: nothing to score"
        )
    if bos_id is None:
        nats += (covered - scored) * math.log(vocab_size)
    tokens = scored if bos_id is not None else covered
    return SourceScore(source, nats / (math.log(2) * size), nats / tokens, tokens, size, complete)


def overall(scores: Iterable[SourceScore]) -> float | None:
    """Bits per byte over all sources together, each weighted by its bytes; None without sources."""
    rows = list(scores)
    size = sum(row.bytes for row in rows)
    return math.fsum(row.bits_per_byte * row.bytes for row in rows) / size if size else None


class ByteCodec(Protocol):
    """A tokenizer that knows the bytes behind its ids."""

    @property
    def real_vocab_size(self) -> int: ...
    @property
    def special_ids(self) -> frozenset[int]: ...
    def token_bytes(self, token: int, /) -> bytes: ...


def byte_lengths(codec: ByteCodec, vocab_size: int) -> NDArray[np.int64]:
    """Bytes of text behind each id; special tokens and ids that only pad the vocabulary have none."""
    lengths = np.zeros(vocab_size, dtype=np.int64)
    for token in range(codec.real_vocab_size):
        if token not in codec.special_ids:
            lengths[token] = len(codec.token_bytes(token))
    return lengths
