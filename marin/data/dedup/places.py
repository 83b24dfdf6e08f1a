"""Documents by number: where each one lies, whatever order the sources were given in.

Imports nothing heavy.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from marin.data.documents.artifacts import Attributes, Documents, DocumentShard
from marin.execution import StepError


@dataclass(frozen=True)
class Origin:
    """Documents with what is known of them.

    Attributes:
        pages: the documents.
        signals: their signals.
        inside: which of them are copies of one another, when that has been found already.
    """

    pages: Documents
    signals: Attributes
    inside: Attributes | None = None


@dataclass(frozen=True)
class Piece:
    """A shard of documents, and the number of its first one.

    Attributes:
        origin: number of its origin.
        shard: the shard.
        start: number of its first document among all documents of all origins.
    """

    origin: int
    shard: DocumentShard
    start: int


@dataclass(frozen=True)
class Group:
    """Consecutive shards that one task works on.

    Attributes:
        number: number of the group.
        pieces: its shards.
        start: number of the first document.
        stop: number after the last document.
    """

    number: int
    pieces: tuple[Piece, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class Places:
    """All documents in one order: by source, then by artifact, then by name of the shard.

    Attributes:
        origins: the artifacts.
        origin_starts: number of the first document of each origin.
        groups: all shards, dealt out to tasks.
        sources: names of all sources, sorted.
        documents: number of documents.
    """

    origins: tuple[Origin, ...]
    origin_starts: tuple[int, ...]
    groups: tuple[Group, ...]
    sources: tuple[str, ...]
    documents: int

    @property
    def group_starts(self) -> tuple[int, ...]:
        """Number of the first document of each group."""
        return tuple(group.start for group in self.groups)


def places_of(origins: Sequence[Origin], documents_per_task: int) -> Places:
    """Number the documents.

    Raises:
        StepError: one artifact is given twice.
    """
    ordered = sorted(origins, key=lambda origin: (origin.pages.source or "", origin.pages.identity))
    for one, other in itertools.pairwise(ordered):
        if one.pages.identity == other.pages.identity:
            raise StepError(f"the documents {one.pages.identity[:10]} are given twice; give every source once")
    pieces: list[Piece] = []
    starts: list[int] = []
    total = 0
    for number, origin in enumerate(ordered):
        starts.append(total)
        for shard in sorted(origin.pages.shards, key=lambda shard: shard.name):
            pieces.append(Piece(number, shard, total))
            total += shard.rows
    return Places(
        origins=tuple(ordered),
        origin_starts=tuple(starts),
        groups=tuple(_groups(pieces, documents_per_task)),
        sources=tuple(sorted({piece.shard.source for piece in pieces})),
        documents=total,
    )


def _groups(pieces: Sequence[Piece], documents_per_task: int) -> list[Group]:
    dealt: list[list[Piece]] = []
    rows = 0
    for piece in pieces:
        if not dealt or rows + piece.shard.rows > documents_per_task:
            dealt.append([])
            rows = 0
        dealt[-1].append(piece)
        rows += piece.shard.rows
    return [
        Group(number, tuple(own), own[0].start, own[-1].start + own[-1].shard.rows) for number, own in enumerate(dealt)
    ]
