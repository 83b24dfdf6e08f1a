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
        place: place of its origin among those of the group.
        origin: number of its origin among all.
        origin_start: number of the first document of the origin.
        shard: the shard.
        start: number of its first document among all documents of all origins.
    """

    place: int
    origin: int
    origin_start: int
    shard: DocumentShard
    start: int


@dataclass(frozen=True)
class Group:
    """Consecutive shards that one task works on.

    Attributes:
        number: number of the group.
        origins: the artifacts that it has shards of.
        pieces: its shards.
        start: number of the first document.
        stop: number after the last document.
    """

    number: int
    origins: tuple[Origin, ...]
    pieces: tuple[Piece, ...]
    start: int
    stop: int

    def origin_of(self, piece: Piece) -> Origin:
        """The artifact that has a shard of the group."""
        return self.origins[piece.place]


@dataclass(frozen=True)
class Places:
    """All documents in one order: by source, then by artifact, then by name of the shard.

    Attributes:
        origin_starts: number of the first document of each origin.
        groups: all shards, dealt out to tasks.
        sources: names of all sources, sorted.
        documents: number of documents.
    """

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
    shards: list[tuple[int, int, DocumentShard, int]] = []
    starts: list[int] = []
    total = 0
    for number, origin in enumerate(ordered):
        starts.append(total)
        for shard in sorted(origin.pages.shards, key=lambda shard: shard.name):
            shards.append((number, starts[-1], shard, total))
            total += shard.rows
    return Places(
        origin_starts=tuple(starts),
        groups=tuple(_groups(ordered, shards, documents_per_task)),
        sources=tuple(sorted({shard.source for _, _, shard, _ in shards})),
        documents=total,
    )


def _groups(
    origins: Sequence[Origin], shards: Sequence[tuple[int, int, DocumentShard, int]], documents_per_task: int
) -> list[Group]:
    dealt: list[list[tuple[int, int, DocumentShard, int]]] = []
    rows = 0
    for entry in shards:
        size = entry[2].rows
        if not dealt or rows + size > documents_per_task:
            dealt.append([])
            rows = 0
        dealt[-1].append(entry)
        rows += size
    groups: list[Group] = []
    for number, own in enumerate(dealt):
        used = sorted({origin for origin, _, _, _ in own})
        pieces = tuple(
            Piece(used.index(origin), origin, origin_start, shard, start) for origin, origin_start, shard, start in own
        )
        last = pieces[-1]
        groups.append(
            Group(
                number,
                tuple(origins[origin] for origin in used),
                pieces,
                pieces[0].start,
                last.start + last.shard.rows,
            )
        )
    return groups
