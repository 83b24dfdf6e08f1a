"""Documents packed into sequences: a stream of tokens cut every S, with segments, positions and loss mask."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from marin.tokens.mixture.config import RepeatMask
from marin.tokens.mixture.repeats import repeated_targets
from marin.tokens.shards.artifacts import TokenShards
from marin.tokens.shards.indexed import IndexedTokens, Offsets
from marin.tokens.shards.reading import open_shard


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


class TokenStream:
    """The documents of several shards as one stream of tokens. Shards are opened when they are first read.

    Args:
        sizes: tokens of each shard.
        opener: opens the shard of an index.
    """

    def __init__(self, sizes: Sequence[int], opener: Callable[[int], IndexedTokens]) -> None:
        self._begins = [0, *itertools.accumulate(sizes)]
        self._opener = opener
        self._open: dict[int, IndexedTokens] = {}

    @classmethod
    def of(cls, shards: TokenShards) -> TokenStream:
        """The stream of a materialised artifact."""
        return cls([shard.tokens for shard in shards.shards], lambda index: open_shard(shards, shards.shards[index]))

    @property
    def tokens(self) -> int:
        """Tokens in the stream."""
        return self._begins[-1]

    def read(self, begin: int, out: npt.NDArray[np.int64]) -> tuple[int, list[Offsets]]:
        """Fill ``out`` with the tokens from ``begin`` on, as far as the stream goes.

        Returns:
            How many were read, and the places in ``out``, after the first, at which a document begins.
        """
        done, starts = 0, []
        shard = bisect.bisect_right(self._begins, begin) - 1
        while done < len(out) and begin + done < self.tokens:
            source = self._shard(shard)
            low = begin + done - self._begins[shard]
            high = min(low + len(out) - done, source.tokens)
            out[done : done + high - low] = source.ids[low:high]
            found = source.starts_within(low, high)
            if found.size:
                found = found + (done - low)
                starts.append(found[1:] if found[0] == 0 else found)
            done += high - low
            shard += 1
        return done, starts

    def documents_within(self, begin: int, end: int) -> list[tuple[int, int]]:
        """(shard, document within it) of every document that has a token in ``[begin, end)``."""
        found: list[tuple[int, int]] = []
        for shard, (low, high) in enumerate(itertools.pairwise(self._begins)):
            if low < end and begin < high:
                source = self._shard(shard)
                first = source.document_at(max(begin - low, 0))
                last = source.document_at(min(end, high) - low - 1)
                found += [(shard, document) for document in range(first, last + 1)]
        return found

    def _shard(self, index: int) -> IndexedTokens:
        found = self._open.get(index)
        if found is None:
            found = self._open[index] = self._opener(index)
        return found


def sequence_count(tokens: int, sequence_length: int, tail: str = "pad") -> int:
    """Sequences of a stream: with ``tail="pad"`` every token is read once, with ``"drop"`` every sequence is full."""
    return -(-tokens // sequence_length) if tail == "pad" else max(0, tokens - 1) // sequence_length


def first_sequences(shard_tokens: Sequence[int], sequence_length: int) -> tuple[int, ...]:
    """Number of the first sequence that begins in each shard of a stream, and the number of sequences."""
    return tuple(-(-begin // sequence_length) for begin in (0, *itertools.accumulate(shard_tokens)))


def pack(
    reads: Sequence[tuple[TokenStream, int]],
    sequence_length: int,
    pad_id: int,
    *,
    components: npt.NDArray[np.int16] | None = None,
    epochs: npt.NDArray[np.int64] | None = None,
    repeat_mask: RepeatMask | None = None,
) -> Batch:
    """The batch of the given sequences.

    Args:
        reads: for each row, a stream and the number of a sequence in it: tokens ``[i*S, i*S + S + 1)``.
        sequence_length: S.
        pad_id: what fills a row that the stream does not fill.
        components: component of each row.
        epochs: epoch of each row.
        repeat_mask: which repeated patterns to take out of the loss.
    """
    rows, length = len(reads), sequence_length
    window = np.empty((rows, length + 1), dtype=np.int64)
    loss_mask = np.ones((rows, length), dtype=np.bool_)
    owners: list[int] = []
    starts: list[Offsets] = []
    for row, (stream, sequence) in enumerate(reads):
        read, found = stream.read(sequence * length, window[row])
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
    """The first ``sequences`` of an artifact in stored order (None: all, so every token once), for validation.

    The last batch may be smaller; which sequences they are does not depend on the batch size.
    """
    stream = TokenStream.of(shards)
    total = sequence_count(stream.tokens, sequence_length)
    if sequences is not None:
        total = min(total, sequences)
    for first in range(0, total, batch_size):
        chosen = range(first, min(first + batch_size, total))
        yield pack([(stream, sequence) for sequence in chosen], sequence_length, shards.pad_id)
