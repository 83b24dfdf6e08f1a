"""Which candidates stay: in order of preference, and with a check of every pair before one of it is dropped.

The most preferred document of a component stays. Those that it holds are dropped: of equal words, of an equal address,
or with enough of their n-grams in it. The most preferred of the rest stays, and so on. So a chain of small changes
never vanishes as a whole, and whatever is dropped is held by a document that stays.

All components take their turns together, so that the work is done on whole arrays.

Imports numpy; import this module inside step bodies only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marin.data.dedup.keys import EXACT, FUZZY, KEPT, URL, Hashes, Numbers
from marin.data.dedup.reading import gram_places
from marin.data.filtering.words import mix

MOST_COMPARED = 64
"""Kept documents of one component that a document is compared with. It bounds the work in large components."""

Shares = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Members:
    """Documents of several components, sorted by component, then with the preferred ones first; an entry each.

    Attributes:
        components: number of their component.
        words: a number that documents of equal words share.
        urls: a number that documents of an equal address share.
        origins: number of their artifact.
        protected: whether they always stay.
        counts: number of their n-grams; of documents with equal words one has them.
        grams: n-grams of all of them behind one another, sorted and distinct for each.
    """

    components: Numbers
    words: Numbers
    urls: Numbers
    origins: Numbers
    protected: Flags
    counts: Numbers
    grams: Hashes


@dataclass(frozen=True)
class Verdicts:
    """What becomes of each member.

    Attributes:
        keepers: row of the member that stays in its place; its own when it stays itself.
        kinds: why it is dropped, as in `keys.REASONS`.
        shares: share of its n-grams in the member that stays; 1 for equal words, NaN when unknown.
        leads: whether others were compared with it.
        uncompared: members that stay because their component has too many others to compare with.
    """

    keepers: Numbers
    kinds: Numbers
    shares: Shares
    leads: Flags
    uncompared: int


def settle(members: Members, containment: float, *, across: bool) -> Verdicts:
    """Decide which documents stay.

    Args:
        members: the documents.
        containment: share of a document's n-grams that the one in its place must have.
        across: compare texts of different artifacts only.
    """
    count = len(members.words)
    verdicts = Verdicts(
        np.arange(count), np.full(count, KEPT), np.full(count, np.nan), np.zeros(count, bool), uncompared=0
    )
    left = _copies_of_protected(members, verdicts)
    comparer = _Comparer(members)
    for _ in range(MOST_COMPARED):
        if not len(left):
            return verdicts
        components = members.components[left]
        first = np.ones(len(left), bool)
        first[1:] = components[1:] != components[:-1]
        verdicts.leads[left[first]] = True
        leaders = left[first][np.cumsum(first) - 1]
        left = left[~first]
        gone = _held(members, comparer, verdicts, left, leaders[~first], containment, across)
        left = left[~gone]
    return _rest(members, verdicts, left)


def _copies_of_protected(members: Members, verdicts: Verdicts) -> Numbers:
    """Drop the copies of protected documents that are less preferred than these; the rows that are left."""
    count = len(members.words)
    rows = np.arange(count)
    if not members.protected.any():
        return rows
    _, words = np.unique(members.words, return_inverse=True)
    least = np.full(count, count)
    np.minimum.at(least, words[members.protected], rows[members.protected])
    keepers = least[words]
    gone = ~members.protected & (keepers < rows)
    verdicts.keepers[gone], verdicts.kinds[gone], verdicts.shares[gone] = keepers[gone], EXACT, 1.0
    return rows[~gone]


def _held(
    members: Members,
    comparer: _Comparer,
    verdicts: Verdicts,
    rows: Numbers,
    leaders: Numbers,
    containment: float,
    across: bool,
) -> Flags:
    """Drop the rows that their leaders hold, and tell which."""
    same_words = members.words[rows] == members.words[leaders]
    same_urls = members.urls[rows] == members.urls[leaders]
    shares = np.where(same_words, 1.0, np.nan)
    compared = ~same_words & ~members.protected[rows]
    if across:
        compared &= members.origins[rows] != members.origins[leaders]
    shares[compared] = comparer.shares(rows[compared], leaders[compared])
    gone: Flags = (same_words | same_urls | (shares >= containment)) & ~members.protected[rows]
    verdicts.keepers[rows[gone]] = leaders[gone]
    verdicts.kinds[rows[gone]] = np.where(same_words, EXACT, np.where(same_urls, URL, FUZZY))[gone]
    verdicts.shares[rows[gone]] = shares[gone]
    return gone


def _rest(members: Members, verdicts: Verdicts, left: Numbers) -> Verdicts:
    """Documents that are not compared any more: of these only copies of equal words or address are dropped."""
    by_words: dict[int, int] = {}
    by_url: dict[int, int] = {}
    uncompared = 0
    rows = zip(
        left.tolist(),
        members.words[left].tolist(),
        members.urls[left].tolist(),
        members.protected[left].tolist(),
        strict=True,
    )
    for row, words, url, protected in rows:
        keeper, kind = (by_words[words], EXACT) if words in by_words else (by_url.get(url, row), URL)
        if keeper != row and not protected:
            verdicts.keepers[row], verdicts.kinds[row] = keeper, kind
            verdicts.shares[row] = 1.0 if kind == EXACT else np.nan
            continue
        by_words.setdefault(words, row)
        by_url.setdefault(url, row)
        uncompared += not protected
    return Verdicts(verdicts.keepers, verdicts.kinds, verdicts.shares, verdicts.leads, uncompared)


class _Comparer:
    """Shares of n-grams that one member has of another's."""

    def __init__(self, members: Members) -> None:
        self._counts = members.counts
        self._grams = members.grams
        # N-grams of a component meet those of no other.
        self._salts = mix(members.components.astype(np.uint64) + np.uint64(1))
        read = np.flatnonzero(members.counts)
        _, words = np.unique(members.words, return_inverse=True)
        readers = np.full(len(members.words), -1)
        readers[words[read[::-1]]] = read[::-1]
        self._readers = readers[words] if len(words) else readers

    def shares(self, rows: Numbers, leaders: Numbers) -> Shares:
        """Share of each row's n-grams that its leader has; NaN where one of the texts was not read.

        The leader of all rows of one component is the same.
        """
        found = np.full(len(rows), np.nan)
        read, held_by = self._readers[rows], self._readers[leaders]
        known = np.flatnonzero((read >= 0) & (held_by >= 0))
        if not len(known):
            return found
        asked, of_row = np.unique(read[known], return_inverse=True)
        present = _Present(self._salted(np.unique(held_by[known])))
        sizes = self._counts[asked]
        hits = np.concatenate([[0], np.cumsum(present.holds(self._salted(asked)))])
        ends = np.cumsum(sizes)
        found[known] = ((hits[ends] - hits[ends - sizes]) / sizes)[of_row]
        return found

    def _salted(self, rows: Numbers) -> Hashes:
        return self._grams[gram_places(self._counts, rows)] ^ np.repeat(self._salts[rows], self._counts[rows])


class _Present:
    """A set of 64-bit hashes, as tables that a hash's own bits point into: two look-ups for most of what is asked."""

    def __init__(self, hashes: Hashes) -> None:
        bits = max(8, len(hashes).bit_length() + 2)
        self._shift = np.uint64(64 - bits)
        self._mask = np.uint64((1 << bits) - 1)
        # An empty place holds a hash that is never looked for there.
        self._upper = np.zeros(1 << bits, np.uint64)
        self._upper[0] = self._mask << self._shift
        self._upper[hashes >> self._shift] = hashes
        # What has lost its place to another hash goes by its lower bits.
        lost = hashes[self._upper[hashes >> self._shift] != hashes]
        self._lower = np.zeros(1 << bits, np.uint64)
        self._lower[0] = 1
        self._lower[lost & self._mask] = lost
        self._rest = np.unique(lost[self._lower[lost & self._mask] != lost])

    def holds(self, asked: Hashes) -> Flags:
        """Whether each hash is in the set."""
        found: Flags = self._upper[asked >> self._shift] == asked
        missing = np.flatnonzero(~found)
        again = asked[missing]
        held = self._lower[again & self._mask] == again
        if len(self._rest):
            at = np.minimum(np.searchsorted(self._rest, again), len(self._rest) - 1)
            held |= self._rest[at] == again
        found[missing] = held
        return found
