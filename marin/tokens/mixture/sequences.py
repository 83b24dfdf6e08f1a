"""The sequences of a component, read one by one: cut from a stream of documents, or put together by a plan."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from marin.execution import StepError
from marin.tokens.shards.artifacts import ShardPacking, TokenShards
from marin.tokens.shards.indexed import Offsets, TokenSource
from marin.tokens.shards.plans import PlannedSpans
from marin.tokens.shards.reading import OpenShards


class SequenceReader(Protocol):
    """Numbered sequences of tokens.

    Attributes:
        count: how many there are.
        parts: number of the first sequence that begins in each shard, and ``count``.
        dropped_tokens: tokens that no sequence holds.
        padded_places: places of sequences that no token fills.
    """

    count: int
    parts: tuple[int, ...]
    dropped_tokens: int
    padded_places: int

    def fill(self, sequence: int, out: npt.NDArray[np.int64]) -> tuple[int, list[Offsets]]:
        """Fill ``out`` (one place more than a sequence, for the last target) with the tokens of a sequence.

        Returns:
            How many were filled in, and the places, after the first, at which a document begins. The last place is
            filled only where the document of the one before it goes on.
        """

    def documents(self, sequence: int) -> list[tuple[int, int]]:
        """(shard, document within it) of every document that has a token in the sequence, in order."""


def sequences_of(
    shards: TokenShards, sequence_length: int, tail: str = "pad", opened: OpenShards | None = None
) -> SequenceReader:
    """The sequences of a materialised artifact, packed as it says.

    Args:
        shards: the artifact.
        sequence_length: places of a sequence.
        tail: what happens to the last sequence where documents carry on; see :class:`CarriedOn`.
        opened: the shards that are in use, when several artifacts share them.

    Raises:
        StepError: it was packed into sequences of another length.
    """
    opened = opened or OpenShards()
    stream = TokenStream.of(shards, opened)
    planned = shards.packing.sequence_length
    if planned is None:
        return CarriedOn(stream, [shard.tokens for shard in shards.shards], sequence_length, tail)
    if planned != sequence_length:
        raise StepError(
            f"the tokens of {shards.selection} were packed into sequences of {planned}, the run reads "
            f"{sequence_length}; set tokenize.packing.sequence_length to the model's"
        )
    packings = [shard.packing for shard in shards.shards if shard.packing is not None]
    return PlannedSequences(stream, packings, lambda index, source: opened.plan(shards, index, source))


class CarriedOn:
    """Sequences cut from a stream every ``sequence_length`` tokens, with the first token of the next as last target.

    With ``tail="pad"`` every token is in a sequence; with ``"drop"`` every sequence is full, its last target included.
    """

    def __init__(
        self, stream: TokenStream, shard_tokens: Sequence[int], sequence_length: int, tail: str = "pad"
    ) -> None:
        self._stream = stream
        self._length = sequence_length
        self.count = sequence_count(stream.tokens, sequence_length, tail)
        begins = (0, *itertools.accumulate(shard_tokens))
        self.parts = tuple(min(self.count, -(-begin // sequence_length)) for begin in begins)
        self.dropped_tokens = max(0, stream.tokens - self.count * sequence_length)
        self.padded_places = max(0, self.count * sequence_length - stream.tokens)

    def fill(self, sequence: int, out: npt.NDArray[np.int64]) -> tuple[int, list[Offsets]]:
        """See :class:`SequenceReader`."""
        return self._stream.read(sequence * self._length, out)

    def documents(self, sequence: int) -> list[tuple[int, int]]:
        """See :class:`SequenceReader`."""
        return self._stream.documents_within(sequence * self._length, (sequence + 1) * self._length)


class PlannedSequences:
    """Sequences that packing plans put together, shard by shard; a plan is opened when it is first used.

    Args:
        stream: the documents.
        packings: what the plan of each shard comes to.
        opener: gives the plan of the shard of an index, and the shard's documents.
    """

    def __init__(
        self,
        stream: TokenStream,
        packings: Sequence[ShardPacking],
        opener: Callable[[int, TokenSource], PlannedSpans],
    ) -> None:
        self._stream = stream
        self._opener = opener
        self.parts = (0, *itertools.accumulate(packing.sequences for packing in packings))
        self.count = self.parts[-1]
        self.dropped_tokens = sum(packing.dropped_tokens for packing in packings)
        self.padded_places = sum(packing.padded_places for packing in packings)

    def fill(self, sequence: int, out: npt.NDArray[np.int64]) -> tuple[int, list[Offsets]]:
        """See :class:`SequenceReader`."""
        shard, spans = self._spans(sequence)
        source = self._stream.shard(shard)
        done, starts = 0, []
        for begin, end in spans:
            source.copy_ids(begin, out[done : done + end - begin])
            if done:
                starts.append(np.array([done], dtype=np.int64))
            starts.append(source.starts_within(begin + 1, end) + (done - begin))
            done += end - begin
        end = spans[-1][1]
        if done == len(out) - 1 and end < source.tokens and not source.starts_within(end, end + 1).size:
            source.copy_ids(end, out[done:])
            done += 1
        return done, starts

    def documents(self, sequence: int) -> list[tuple[int, int]]:
        """See :class:`SequenceReader`."""
        shard, spans = self._spans(sequence)
        base = self._stream.begin_of(shard)
        return [
            document for begin, end in spans for document in self._stream.documents_within(base + begin, base + end)
        ]

    def _spans(self, sequence: int) -> tuple[int, list[tuple[int, int]]]:
        shard = bisect.bisect_right(self.parts, sequence) - 1
        plan = self._opener(shard, self._stream.shard(shard))
        return shard, plan.spans(sequence - self.parts[shard])


class TokenStream:
    """The documents of several shards as one stream of tokens. Shards are opened when they are first read.

    Args:
        sizes: tokens of each shard.
        opener: gives the shard of an index.
    """

    def __init__(self, sizes: Sequence[int], opener: Callable[[int], TokenSource]) -> None:
        self._begins = [0, *itertools.accumulate(sizes)]
        self._opener = opener

    @classmethod
    def of(cls, shards: TokenShards, opened: OpenShards | None = None) -> TokenStream:
        """The stream of a materialised artifact. ``opened`` are the shards in use, when several streams share them."""
        opened = opened or OpenShards()
        return cls([shard.tokens for shard in shards.shards], lambda index: opened.source(shards, index))

    @property
    def tokens(self) -> int:
        """Tokens in the stream."""
        return self._begins[-1]

    def begin_of(self, shard: int) -> int:
        """Place in the stream at which a shard begins."""
        return self._begins[shard]

    def read(self, begin: int, out: npt.NDArray[np.int64]) -> tuple[int, list[Offsets]]:
        """Fill ``out`` with the tokens from ``begin`` on, as far as the stream goes.

        Returns:
            How many were read, and the places in ``out``, after the first, at which a document begins.
        """
        done, starts = 0, []
        shard = bisect.bisect_right(self._begins, begin) - 1
        while done < len(out) and begin + done < self.tokens:
            source = self.shard(shard)
            low = begin + done - self._begins[shard]
            high = min(low + len(out) - done, source.tokens)
            source.copy_ids(low, out[done : done + high - low])
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
                source = self.shard(shard)
                first = source.document_at(max(begin - low, 0))
                last = source.document_at(min(end, high) - low - 1)
                found += [(shard, document) for document in range(first, last + 1)]
        return found

    def shard(self, index: int) -> TokenSource:
        """The shard of an index."""
        return self._opener(index)


def sequence_count(tokens: int, sequence_length: int, tail: str = "pad") -> int:
    """Sequences of a stream: with ``tail="pad"`` every token is read once, with ``"drop"`` every sequence is full."""
    return -(-tokens // sequence_length) if tail == "pad" else max(0, tokens - 1) // sequence_length
