"""The shards that are joined: each with all that lies beside it, and nothing of the others."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from marin.data.documents.artifacts import Attributes, AttributeShard, Documents, DocumentShard
from marin.execution import StepError

A = TypeVar("A", Attributes, Documents)


@dataclass(frozen=True)
class Inputs:
    """What is joined: the documents of every source with their signals, and the verdicts on all of them.

    Attributes:
        pages: the sources.
        signals: the signals of each.
        duplicates: which documents are copies of which.
        contamination: which overlap with evaluation items.
        cells: quality and topic of each.
        cuts: passages that are to be cut out, in several kinds.
    """

    pages: Sequence[Documents]
    signals: Sequence[Attributes]
    duplicates: Attributes
    contamination: Attributes
    cells: Attributes
    cuts: Sequence[Attributes] = ()

    def __post_init__(self) -> None:
        if len(self.pages) != len(self.signals):
            raise StepError(
                f"consolidate got {len(self.pages)} documents and {len(self.signals)} signals; give the signals of "
                "each, in order"
            )
        kinds = [cut.kind for cut in self.cuts]
        if len(set(kinds)) != len(kinds):
            raise StepError(f"consolidate got cuts of the kinds {', '.join(kinds)}; give each kind once")


@dataclass(frozen=True)
class Place:
    """One shard of pages with the attributes beside it. Pickles; every artifact knows this shard only.

    Attributes:
        pages: the artifact of the shard.
        shard: the shard.
        start: number of its first document among all documents.
        signals: its signals.
        duplicates: its duplicates.
        contamination: its overlap with evaluation items.
        cells: its quality and topics.
        cuts: its passages to cut.
    """

    pages: Documents
    shard: DocumentShard
    start: int
    signals: Attributes
    duplicates: Attributes
    contamination: Attributes
    cells: Attributes
    cuts: tuple[Attributes, ...]


def places_of(inputs: Inputs) -> Iterator[Place]:
    """Every shard, in the order in which documents are numbered.

    Raises:
        StepError: a shard has no attributes of some kind.
    """
    everywhere = [inputs.duplicates, inputs.contamination, inputs.cells, *inputs.cuts]
    indices = [_index(attributes) for attributes in everywhere]
    start = 0
    for pages, signals in zip(inputs.pages, inputs.signals, strict=True):
        of_signals = _index(signals)
        for shard in pages.shards:
            own = _beside(signals, of_signals, pages, shard)
            duplicates, contamination, cells, *cuts = (
                _beside(attributes, index, pages, shard) for attributes, index in zip(everywhere, indices, strict=True)
            )
            yield Place(_only(pages, (shard,)), shard, start, own, duplicates, contamination, cells, tuple(cuts))
            start += shard.rows


_Index = dict[tuple[str, str], AttributeShard]


def _index(attributes: Attributes) -> _Index:
    return {(shard.documents, shard.document_shard): shard for shard in attributes.shards}


def _beside(attributes: Attributes, index: _Index, pages: Documents, shard: DocumentShard) -> Attributes:
    found = index.get((pages.identity, shard.name))
    if found is None:
        raise StepError(
            f"{attributes.kind} has no attributes for shard {shard.name!r} of documents {pages.identity[:10]}; "
            "make it from the same pages"
        )
    return _only(attributes, (found,))


def _only(artifact: A, shards: tuple[DocumentShard, ...] | tuple[AttributeShard, ...]) -> A:
    """The artifact with some of its shards: a list of a hundred thousand need not travel with each task."""
    part = copy.copy(artifact)
    object.__setattr__(part, "shards", shards)
    return part
