"""Which documents are copies of which: a pure function of what is known of each document.

Candidates share a MinHash band; documents that candidates connect form a component. In a component the documents are
taken in the order of preference: each one is compared with those kept so far, and dropped only when its n-grams are
contained in one of them. So a chain of small changes is never dropped as a whole, and everything removed has a kept
document that holds its text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marin.data.dedup.config import DedupConfig

_MOST_KEPT = 64
"""Kept documents of one component that a document is compared with. It bounds the work in large components."""


@dataclass(frozen=True)
class Candidate:
    """What duplicate removal knows of a document before reading its text.

    Attributes:
        id: document id.
        source: source of the document.
        passes: whether it passes the filters.
        content: hash of its words, None without words: such a document matches nothing.
        bands: LSH band keys, None without words.
    """

    id: str
    source: str
    passes: bool
    content: bytes | None
    bands: bytes | None


@dataclass(frozen=True)
class Verdicts:
    """For each document, in the order given.

    Attributes:
        kept: position of the document that stays in its place; its own position when it stays itself.
        containment: share of its n-grams in the document that stays; 1.0 for itself and for exact copies.
        exact: whether its words equal those of the document that stays.
        components: number of components with more than one document.
        uncompared: documents that were kept because their component has too many kept ones to compare with.
    """

    kept: NDArray[np.int64]
    containment: NDArray[np.float64]
    exact: NDArray[np.bool_]
    components: int
    uncompared: int


@dataclass(frozen=True)
class Components:
    """Documents that may be near copies of one another.

    Attributes:
        order: positions of all documents, the most preferred first.
        same: for each document, the preferred one among those with the same words.
        groups: positions of documents with different words that bands connect, in order of preference.
    """

    order: NDArray[np.int64]
    same: NDArray[np.int64]
    groups: tuple[tuple[int, ...], ...]

    def wanted(self) -> set[int]:
        """Positions of the documents whose n-grams have to be compared."""
        return {position for group in self.groups for position in group}


def find_components(candidates: Sequence[Candidate], config: DedupConfig) -> Components:
    """Group exact copies, and connect near ones by their bands."""
    order = np.array(sorted(range(len(candidates)), key=lambda at: _preference(candidates[at], at, config)), np.int64)
    same = np.arange(len(candidates))
    worded = np.array([at for at in order if candidates[at].content is not None], np.int64)
    if not len(worded):
        return Components(order, same, ())
    contents = np.array([candidates[at].content for at in worded], "S16")
    _, first, group = np.unique(contents, return_index=True, return_inverse=True)
    same[worded] = worded[first[group]]
    if not config.fuzzy:
        return Components(order, same, ())
    distinct = worded[np.sort(first)]
    return Components(order, same, _connected([candidates[at].bands for at in distinct], distinct))


def settle(
    candidates: Sequence[Candidate],
    components: Components,
    grams: Mapping[int, NDArray[np.uint64]],
    config: DedupConfig,
) -> Verdicts:
    """Decide which documents stay.

    Args:
        candidates: all documents.
        components: what ``find_components`` found for them.
        grams: sorted distinct n-gram hashes of the texts of ``components.wanted()``.
        config: what counts as a copy.
    """
    kept = np.arange(len(candidates))
    containment = np.ones(len(candidates))
    uncompared = 0
    for group in components.groups:
        leaders = _Leaders()
        for position in group:
            if candidates[position].source not in config.protected:
                found = leaders.holder_of(grams[position], config.containment)
                if found is not None:
                    kept[position], containment[position] = found
                    continue
                uncompared += leaders.full
            leaders.add(position, grams[position])
    same = components.same
    copies = np.array([candidate.source not in config.protected for candidate in candidates], bool)
    follows = copies & (same != np.arange(len(candidates)))
    kept[follows] = kept[same[follows]]
    containment[follows] = containment[same[follows]]
    return Verdicts(
        kept=kept,
        containment=containment,
        exact=same == same[kept] if len(candidates) else np.zeros(0, bool),
        components=len(components.groups),
        uncompared=uncompared,
    )


def _preference(candidate: Candidate, position: int, config: DedupConfig) -> tuple[bool, bool, int, str, int]:
    rank = config.priority.index(candidate.source) if candidate.source in config.priority else len(config.priority)
    # Documents of one id are alike in everything, so that their position decides nothing but which row stays.
    return (not candidate.passes, candidate.source not in config.protected, rank, candidate.id, position)


def _connected(bands: Sequence[bytes | None], positions: NDArray[np.int64]) -> tuple[tuple[int, ...], ...]:
    """Components of more than one document over all bands, each in the order of ``positions``."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    keys = np.frombuffer(b"".join(band or b"" for band in bands), "<u8").reshape(len(bands), -1)
    ones, others = [], []
    for band in keys.T:
        # Every member of a bucket is tied to its first one: as many edges as documents, however large the bucket.
        _, first, bucket = np.unique(band, return_index=True, return_inverse=True)
        tied = np.flatnonzero(first[bucket] != np.arange(len(bands)))
        ones.append(tied)
        others.append(first[bucket][tied])
    one, other = np.concatenate(ones), np.concatenate(others)
    graph = coo_array((np.ones(len(one), np.int8), (one, other)), shape=(len(bands), len(bands)))
    _, labels = connected_components(graph, directed=False)
    by_label = np.argsort(labels, kind="stable")
    parts = np.split(by_label, np.flatnonzero(np.diff(labels[by_label])) + 1)
    groups = sorted(part.tolist() for part in parts if len(part) > 1)
    return tuple(tuple(int(positions[at]) for at in group) for group in groups)


class _Leaders:
    """The kept documents of one component, by their n-grams."""

    def __init__(self) -> None:
        self._positions: list[int] = []
        self._owners: dict[int, list[int]] = {}

    @property
    def full(self) -> bool:
        """Whether further documents are no longer compared with."""
        return len(self._positions) == _MOST_KEPT

    def add(self, position: int, grams: NDArray[np.uint64]) -> None:
        """Take in a document that stays."""
        if self.full:
            return
        number = len(self._positions)
        self._positions.append(position)
        for gram in grams.tolist():
            self._owners.setdefault(gram, []).append(number)

    def holder_of(self, grams: NDArray[np.uint64], least: float) -> tuple[int, float] | None:
        """The first document that holds enough of these n-grams, with the share."""
        held = [0] * len(self._positions)
        for gram in grams.tolist():
            for number in self._owners.get(gram, ()):
                held[number] += 1
        for number, count in enumerate(held):
            if count >= least * len(grams):
                return self._positions[number], count / len(grams)
        return None
