"""Batches of packed sequences, with segments, positions and loss mask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from marin.tokens.mixture.config import RepeatMask
from marin.tokens.mixture.repeats import repeated_targets
from marin.tokens.mixture.sequences import CarriedOn, SequenceReader, TokenStream
from marin.tokens.shards.artifacts import TokenShards
from marin.tokens.shards.indexed import Offsets


@dataclass(frozen=True)
class Batch:
    """Packed sequences; B rows of S places.

    Attributes:
        tokens: int64 [B, S], what the model reads.
        targets: int64 [B, S], the next token of the stream.
        segments: int32 [B, S], number of the document within the row, from 0, ascending; padding is a segment too.
        positions: int64 [B, S], place within the document as packed: 0 at its first token in this row.
        loss_mask: bool [B, S], False where the target belongs to another document or is padding.
        components: int16 [B], index of the component (0 without a mixture).
        epochs: int64 [B], how often the component had been seen before.
        sequences: int64 [B], number of the sequence within the component.
        repeats: int32 [B], places that were taken out of the loss because a pattern repeats itself there.
    """

    tokens: npt.NDArray[np.int64]
    targets: npt.NDArray[np.int64]
    segments: npt.NDArray[np.int32]
    positions: npt.NDArray[np.int64]
    loss_mask: npt.NDArray[np.bool_]
    components: npt.NDArray[np.int16]
    epochs: npt.NDArray[np.int64]
    sequences: npt.NDArray[np.int64]
    repeats: npt.NDArray[np.int32]


def pack(
    reads: Sequence[tuple[SequenceReader, int]],
    sequence_length: int,
    pad_id: int,
    *,
    components: npt.NDArray[np.int16] | None = None,
    epochs: npt.NDArray[np.int64] | None = None,
    repeat_mask: RepeatMask | None = None,
) -> Batch:
    """The batch of the given sequences.

    Args:
        reads: for each row, where to read from, and the number of a sequence there.
        sequence_length: S.
        pad_id: what fills up a row.
        components: component of each row.
        epochs: epoch of each row.
        repeat_mask: which repeated patterns to take out of the loss.
    """
    rows, length = len(reads), sequence_length
    window = np.empty((rows, length + 1), dtype=np.int64)
    loss_mask = np.ones((rows, length), dtype=np.bool_)
    owners: list[int] = []
    starts: list[Offsets] = []
    for row, (reader, sequence) in enumerate(reads):
        read, found = reader.fill(sequence, window[row])
        if read <= length:
            window[row, read:] = pad_id
            loss_mask[row, max(0, read - 1) :] = False
            found.append(np.array([read], dtype=np.int64))
        starts += found
        owners += [row] * len(found)
    firsts = np.arange(rows, dtype=np.int64) * length
    if starts:
        column = np.concatenate(starts)
        row_of = np.repeat(np.asarray(owners, dtype=np.int64), [len(found) for found in starts])
        inside = column > 0
        loss_mask[row_of[inside], column[inside] - 1] = False
        within = inside & (column < length)
        bounds = np.unique(np.concatenate([firsts, row_of[within] * length + column[within]]))
    else:
        bounds = firsts
    sizes = np.diff(bounds, append=rows * length)
    number = np.arange(bounds.size) - np.repeat(*_first_of_row(bounds, firsts))
    positions = np.arange(rows * length, dtype=np.int64)
    positions -= np.repeat(bounds, sizes)
    tokens, targets = np.ascontiguousarray(window[:, :-1]), np.ascontiguousarray(window[:, 1:])
    segments = np.repeat(number.astype(np.int32), sizes).reshape(rows, length)
    repeats = np.zeros(rows, dtype=np.int32)
    if repeat_mask is not None and rows:
        repeated = repeated_targets(tokens, targets, segments, loss_mask, repeat_mask) & loss_mask
        repeats += repeated.sum(axis=1, dtype=np.int32)
        loss_mask &= ~repeated
    return Batch(
        tokens=tokens,
        targets=targets,
        segments=segments,
        positions=positions.reshape(rows, length),
        loss_mask=loss_mask,
        components=np.zeros(rows, dtype=np.int16) if components is None else components,
        epochs=np.zeros(rows, dtype=np.int64) if epochs is None else epochs,
        sequences=np.array([sequence for _, sequence in reads], dtype=np.int64),
        repeats=repeats,
    )


def _first_of_row(bounds: Offsets, firsts: Offsets) -> tuple[Offsets, Offsets]:
    """For each row, the index of its first bound, and how many bounds it has."""
    index = np.searchsorted(bounds, firsts)
    return index, np.diff(index, append=bounds.size)


def packed_batches(
    shards: TokenShards, sequence_length: int, batch_size: int, sequences: int | None = None
) -> Iterator[Batch]:
    """The first ``sequences`` of an artifact in stored order, cut every S tokens (None: all, so every token once).

    The last batch may be smaller; which sequences they are does not depend on the batch size.
    """
    reader = CarriedOn(TokenStream.of(shards), [shard.tokens for shard in shards.shards], sequence_length)
    total = reader.count if sequences is None else min(reader.count, sequences)
    for first in range(0, total, batch_size):
        chosen = range(first, min(first + batch_size, total))
        yield pack([(reader, sequence) for sequence in chosen], sequence_length, shards.pad_id)
