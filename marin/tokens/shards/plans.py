"""Packing plans: which documents, or pieces of them, share a sequence, for each way of packing that needs one.

A plan is made from the lengths of a shard's documents alone. It is stored as two runs of little-endian uint32: for each
sequence, where its entries begin, and the entries. Under ``truncate`` the entries are implied: a sequence is the
documents from one number to the next, cut at its length. Under ``best_fit`` an entry is the number of a chunk. Chunks
follow from the lengths: a document longer than a sequence is cut into pieces of a sequence and a rest, and neighbours
far shorter than a sequence are glued, so that a plan takes less than 1% of the bytes of its tokens.
"""

from __future__ import annotations

import bisect
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Lengths = npt.NDArray[Any]

MAGIC = b"MARINPLN"
HEADER = struct.Struct("<8sIIQQ")
POLICIES = {"truncate": 1, "best_fit": 2}

GLUED = 8
"""Neighbouring documents shorter than this part of a sequence are glued."""

NEIGHBOURHOOD = 256
"""Chunks share a sequence only within stretches of about this many sequences, so that a sequence is read from nearby,
and the order of documents in the shard shows in that of the sequences.
"""


class CorruptPlan(ValueError):
    """A plan that is not what the format says, or not that of its shard."""


@dataclass(frozen=True)
class PackingPlan:
    """The sequences of one shard.

    Attributes:
        policy: ``"truncate"`` or ``"best_fit"``.
        sequence_length: places of a sequence (S).
        begins: uint32 [sequences + 1], where the entries of each sequence begin, and their number.
        chunks: uint32 [entries], chunk of each entry; empty under ``truncate``.
    """

    policy: str
    sequence_length: int
    begins: npt.NDArray[np.uint32]
    chunks: npt.NDArray[np.uint32]

    @property
    def sequences(self) -> int:
        """Number of sequences."""
        return len(self.begins) - 1

    def to_bytes(self) -> bytes:
        """The content of a plan's file."""
        head = HEADER.pack(MAGIC, POLICIES[self.policy], self.sequence_length, len(self.begins), len(self.chunks))
        return head + self.begins.astype("<u4").tobytes() + self.chunks.astype("<u4").tobytes()

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> PackingPlan:
        """The plan in a file.

        Raises:
            CorruptPlan: it is none, or was cut; names the file.
        """
        if len(data) < HEADER.size:
            raise CorruptPlan(f"{name} has {len(data)} bytes, too few for a packing plan")
        magic, code, length, begins, chunks = HEADER.unpack(data[: HEADER.size])
        policies = [name for name, number in POLICIES.items() if number == code]
        if magic != MAGIC or not policies:
            raise CorruptPlan(f"{name} is not a packing plan (begins {data[:8]!r})")
        if len(data) != HEADER.size + 4 * (begins + chunks) or not begins:
            raise CorruptPlan(f"{name} has {len(data)} bytes, which its header does not ask for; it was cut or damaged")
        numbers = np.frombuffer(data, "<u4", begins + chunks, HEADER.size)
        return cls(policies[0], length, numbers[:begins], numbers[begins:])


@dataclass(frozen=True)
class PlanLosses:
    """What a plan leaves out and fills up.

    Attributes:
        dropped_tokens: tokens that no sequence holds.
        padded_places: places of sequences that no token fills.
    """

    dropped_tokens: int
    padded_places: int


class PlannedSpans:
    """A plan together with its shard's documents: the tokens of each sequence.

    Args:
        plan: the plan.
        lengths: tokens of each document of the shard.

    Raises:
        CorruptPlan: the plan is not that of these documents.
    """

    def __init__(self, plan: PackingPlan, lengths: Lengths) -> None:
        self._plan = plan
        if plan.policy == "truncate":
            self._bounds = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
            last = int(plan.begins[-1])
        else:
            self._bounds = chunk_bounds(lengths, plan.sequence_length)
            last = int(plan.chunks.max()) + 1 if len(plan.chunks) else 0
        if last != len(self._bounds) - 1:
            raise CorruptPlan(f"the packing plan is of {last} entries, its shard has {len(self._bounds) - 1}")

    def spans(self, sequence: int) -> list[tuple[int, int]]:
        """(begin, end) of each stretch of the shard's tokens that the sequence holds, in order."""
        begin, end = int(self._plan.begins[sequence]), int(self._plan.begins[sequence + 1])
        if self._plan.policy == "truncate":
            first = int(self._bounds[begin])
            return [(first, min(int(self._bounds[end]), first + self._plan.sequence_length))]
        entries = self._plan.chunks[begin:end].astype(np.int64)
        return list(zip(self._bounds[entries].tolist(), self._bounds[entries + 1].tolist(), strict=True))


def plan_packing(lengths: Lengths, policy: str, sequence_length: int) -> tuple[PackingPlan, PlanLosses]:
    """The plan of a shard whose documents have these lengths, and what it costs."""
    plan = (_truncated if policy == "truncate" else _best_fitted)(lengths, sequence_length)
    tokens = int(np.sum(lengths, dtype=np.int64))
    dropped = 0
    if policy == "truncate":
        bounds = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        taken = np.diff(bounds[plan.begins.astype(np.int64)])
        dropped = int(np.maximum(0, taken - sequence_length).sum())
    return plan, PlanLosses(dropped, plan.sequences * sequence_length - (tokens - dropped))


def chunk_bounds(lengths: Lengths, sequence_length: int) -> Ints:
    """Where each chunk of a shard begins, and the number of its tokens: int64 [chunks + 1].

    No chunk is longer than a sequence, and a document is cut only where it is longer itself.
    """
    sizes: Ints = np.asarray(lengths, dtype=np.int64)
    ends: Ints = np.cumsum(sizes)
    starts = ends - sizes
    grid = max(1, sequence_length // GLUED)
    short = sizes < grid
    glued = np.zeros(len(sizes), dtype=np.bool_)
    glued[1:] = short[1:] & short[:-1] & (starts[1:] // grid == starts[:-1] // grid)
    firsts = starts[~glued]
    total = int(ends[-1]) if len(sizes) else 0
    whole = np.diff(firsts, append=total)
    pieces = np.maximum(1, -(-whole // sequence_length))
    numbers = np.arange(int(pieces.sum())) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    bounds: Ints = np.append(np.repeat(firsts, pieces) + numbers * sequence_length, total)
    return bounds


def _truncated(lengths: Lengths, sequence_length: int) -> PackingPlan:
    """Documents in stored order; the one that reaches the end of a sequence is cut there."""
    bounds = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).tolist()
    begins = [0]
    while begins[-1] < len(lengths):
        begins.append(bisect.bisect_left(bounds, bounds[begins[-1]] + sequence_length, begins[-1] + 1))
        begins[-1] = min(begins[-1], len(lengths))
    return PackingPlan("truncate", sequence_length, np.array(begins, np.uint32), np.zeros(0, np.uint32))


def _best_fitted(lengths: Lengths, sequence_length: int) -> PackingPlan:
    """Chunks, the largest first, each into the fullest sequence that has room for it."""
    bounds = chunk_bounds(lengths, sequence_length)
    sizes = np.diff(bounds)
    stretch = bounds[:-1] // (NEIGHBOURHOOD * sequence_length)
    cuts = np.flatnonzero(np.diff(stretch)) + 1
    sequences: list[list[int]] = []
    for part in np.split(np.arange(len(sizes)), cuts):
        sequences += sorted(sorted(held) for held in _fitted(part, sizes[part], sequence_length))
    begins = np.cumsum([0, *map(len, sequences)], dtype=np.uint32)
    chunks = np.array([chunk for held in sequences for chunk in held], dtype=np.uint32)
    return PackingPlan("best_fit", sequence_length, begins, chunks)


def _fitted(chunks: Ints, sizes: Ints, room: int) -> list[list[int]]:
    order = np.argsort(-sizes, kind="stable")
    sequences: list[list[int]] = []
    by_room: dict[int, list[int]] = {}
    rooms: list[int] = []
    for chunk, size in zip(chunks[order].tolist(), sizes[order].tolist(), strict=True):
        at = bisect.bisect_left(rooms, size)
        if at == len(rooms):
            sequence, left = len(sequences), room - size
            sequences.append([chunk])
        else:
            left = rooms[at] - size
            sequence = by_room[rooms[at]].pop()
            sequences[sequence].append(chunk)
            if not by_room[rooms[at]]:
                del by_room[rooms.pop(at)]
        if left:
            if left not in by_room:
                by_room[left] = []
                bisect.insort(rooms, left)
            by_room[left].append(sequence)
    return sequences
