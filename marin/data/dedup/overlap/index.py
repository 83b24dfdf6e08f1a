"""N-grams of evaluation items as sorted arrays, and the items that each is from.

An n-gram is a 64-bit hash of its word hashes and its length. Its number is its place among all hashes in ascending
order, so a range of numbers is a share of the hashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marin.data.dedup.config import DecontaminationConfig
from marin.data.dedup.overlap.arrays import pack, pack_texts, unpack, unpack_texts
from marin.data.dedup.overlap.words import WordReader, Words
from marin.data.filtering.words import mix

FACTOR = np.uint64(0x9E3779B97F4A7C15)
FENCE = np.uint64(0x5851F42D4C957F2D)
"""A word that stands between two texts: no n-gram of an item has it."""

LOOKED_FOR, TOO_SHORT, NO_LETTERS = 0, 1, 2
"""How an item is indexed: by n-grams, or not at all for one of two reasons."""

_BATCH = 512
_WINDOW = 1 << 18
"""Places that are looked at at once: arrays of so many stay in the cache, and small for a very long text."""
_LEAST_BITS, _MOST_BITS = 16, 26


@dataclass(frozen=True)
class Item:
    """One evaluation item.

    Attributes:
        set_number: number of its evaluation set.
        id: its name in the set.
        parts: its texts in order, what it asks first.
    """

    set_number: int
    id: str
    parts: tuple[str, ...]


class Grams:
    """The n-grams that are looked for.

    Args:
        hashes: their hashes, ascending, without copies.
        lengths: the lengths in words that occur, ascending.
        openings: hashes of the first words of each, ``opening`` of them.
        opening: a number of words that no n-gram has fewer of.
    """

    def __init__(
        self, hashes: NDArray[np.uint64], lengths: Sequence[int], openings: NDArray[np.uint64], opening: int
    ) -> None:
        self.hashes = hashes
        self.lengths = tuple(lengths)
        self.openings = openings
        self.opening = opening
        # One look into a table spares all further work at nearly every place of a text.
        bits = min(max((16 * len(openings)).bit_length(), _LEAST_BITS), _MOST_BITS)
        self._shift = np.uint64(64 - bits)
        self._seen = np.zeros(1 << bits, np.bool_)
        self._seen[openings >> self._shift] = True

    def to_bytes(self) -> bytes:
        """As an intermediate file."""
        lengths = np.array([self.opening, *self.lengths], np.int64)
        return pack({"hashes": self.hashes, "lengths": lengths, "openings": self.openings})

    @staticmethod
    def from_bytes(data: bytes) -> Grams:
        """From an intermediate file."""
        arrays = unpack(data)
        opening, *lengths = arrays["lengths"].tolist()
        return Grams(arrays["hashes"], lengths, arrays["openings"], opening)

    def find(self, words: NDArray[np.uint64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """The numbers of the n-grams that occur, and the number of the first word of each; for each length anew."""
        if not len(self.hashes):
            return
        for first in range(0, len(words), _WINDOW):
            window = words[first : first + _WINDOW + self.lengths[-1] - 1]
            for numbers, places in self._find_in(window):
                yield numbers, places + first

    def _find_in(self, words: NDArray[np.uint64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """`find` for n-grams that begin in the first places of a window."""
        mixed = rolled(words, self.opening)[:_WINDOW]
        places = np.flatnonzero(self._seen[mix(mixed) >> self._shift])
        mixed = mixed[places]
        size = self.opening
        with np.errstate(over="ignore"):
            for length in self.lengths:
                while size < length:
                    whole = places + size < len(words)
                    places, mixed = places[whole], mixed[whole]
                    mixed = mixed * FACTOR + words[places + size]
                    size += 1
                wanted = mix(mixed + np.uint64(length))
                numbers = np.minimum(np.searchsorted(self.hashes, wanted), len(self.hashes) - 1)
                equal = self.hashes[numbers] == wanted
                if equal.any():
                    yield numbers[equal], places[equal]


def rolled(words: NDArray[np.uint64], size: int) -> NDArray[np.uint64]:
    """For every place the polynomial of the words from there on, ``size`` of them; longer ones can be made of it."""
    count = max(0, len(words) - size + 1)
    mixed = words[:count].copy()
    with np.errstate(over="ignore"):
        for offset in range(1, size):
            mixed *= FACTOR
            mixed += words[offset : offset + count]
    return mixed


@dataclass(frozen=True)
class Owners:
    """The items, and which of them have each n-gram.

    Attributes:
        names: names of the evaluation sets.
        sets: number of the set of each item.
        ids: name of each item in its set.
        states: ``LOOKED_FOR``, ``TOO_SHORT`` or ``NO_LETTERS`` of each item.
        lengths: words of each n-gram.
        starts: where the items of each n-gram begin in ``items``, and after the last where they end.
        items: numbers of items, ascending for each n-gram.
    """

    names: tuple[str, ...]
    sets: NDArray[np.int32]
    ids: list[str]
    states: NDArray[np.int8]
    lengths: NDArray[np.int16]
    starts: NDArray[np.int64]
    items: NDArray[np.int32]

    @property
    def gram_counts(self) -> NDArray[np.int64]:
        """Number of distinct n-grams of each item."""
        return np.bincount(self.items, minlength=len(self.ids))

    def of_grams(self, grams: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The items of some n-grams, and for each the place of its n-gram among them."""
        counts = self.starts[grams + 1] - self.starts[grams]
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        places = np.repeat(self.starts[grams] - (ends - counts), counts) + np.arange(total)
        return self.items[places], np.repeat(np.arange(len(grams)), counts)

    def to_bytes(self) -> bytes:
        """As an intermediate file."""
        arrays = {name: getattr(self, name) for name in ("sets", "states", "lengths", "starts", "items")}
        return pack({**arrays, **pack_texts([*self.names, *self.ids])})

    @staticmethod
    def from_bytes(data: bytes) -> Owners:
        """From an intermediate file."""
        arrays = unpack(data)
        texts = unpack_texts(arrays)
        count = len(texts) - len(arrays["sets"])
        return Owners(
            names=tuple(texts[:count]),
            sets=arrays["sets"],
            ids=texts[count:],
            states=arrays["states"],
            lengths=arrays["lengths"],
            starts=arrays["starts"],
            items=arrays["items"],
        )


def index_items(names: Sequence[str], items: Iterable[Item], config: DecontaminationConfig) -> tuple[Grams, Owners]:
    """Index items by their n-grams.

    An item's text is its parts behind one another: its n-grams, or the whole where it is shorter. What an item asks is
    often copied without its answers, so a first part that is shorter than an n-gram is also looked for as a whole.
    """
    reader = WordReader()
    sets: list[int] = []
    ids: list[str] = []
    found: list[_BatchGrams] = []
    stream = iter(items)
    while batch := list(islice(stream, _BATCH)):
        words = reader.read([part for item in batch for part in item.parts])
        found.append(_grams_of(words, [len(item.parts) for item in batch], len(ids), config))
        sets.extend(item.set_number for item in batch)
        ids.extend(item.id for item in batch)
    hashes, openings, lengths, owners, states = (
        np.concatenate([empty, *(getattr(one, name) for one in found)])
        for name, empty in (
            ("hashes", np.zeros(0, np.uint64)),
            ("openings", np.zeros(0, np.uint64)),
            ("lengths", np.zeros(0, np.int16)),
            ("items", np.zeros(0, np.int32)),
            ("states", np.zeros(0, np.int8)),
        )
    )
    # Stable: the items of an n-gram stay in ascending order.
    order = np.argsort(hashes, kind="stable")
    known, firsts = np.unique(hashes[order], return_index=True)
    lengths = lengths[order][firsts]
    return (
        Grams(known, np.unique(lengths).tolist(), np.unique(openings), config.shortest_gram),
        Owners(
            names=tuple(names),
            sets=np.array(sets, np.int32),
            ids=ids,
            states=states,
            lengths=lengths,
            starts=np.append(firsts, len(hashes)).astype(np.int64),
            items=owners[order],
        ),
    )


@dataclass(frozen=True)
class _BatchGrams:
    """Distinct n-grams of some items, those of each in order: hashes of all and of the first words, lengths, items.

    ``states`` has one entry for each item.
    """

    hashes: NDArray[np.uint64]
    openings: NDArray[np.uint64]
    lengths: NDArray[np.int16]
    items: NDArray[np.int32]
    states: NDArray[np.int8]


def _grams_of(words: Words, parts: Sequence[int], first: int, config: DecontaminationConfig) -> _BatchGrams:
    """The n-grams that have a letter, of items that have so many parts; the first item is number ``first``."""
    shortest, longest = config.shortest_gram, config.n_gram
    part_ends = np.concatenate([[0], np.cumsum(words.counts)])
    first_parts = np.cumsum([0, *parts])
    begins = part_ends[first_parts[:-1]]
    sizes = part_ends[first_parts[1:]] - begins
    asked = part_ends[np.minimum(first_parts[:-1] + 1, first_parts[1:])] - begins
    # Two characters of a script without spaces say about as much as a word.
    weights = np.concatenate([[0], np.cumsum(2 - words.unspaced.astype(np.int64))])
    long_enough = weights[begins + sizes] - weights[begins] >= 2 * shortest
    asked_enough = weights[begins + asked] - weights[begins] >= 2 * shortest
    numbers = np.arange(len(parts))
    # Where n-grams begin, of which item and how long they are: all of a long item, a short one, what an item asks.
    counts = np.where(long_enough, np.maximum(sizes - longest + 1, 0), 0)
    ends = np.cumsum(counts)
    owners = np.repeat(numbers, counts)
    places = np.repeat(begins - (ends - counts), counts) + np.arange(len(owners))
    short = long_enough & (sizes < longest)
    alone = asked_enough & (asked < np.minimum(sizes, longest))
    owners = np.concatenate([owners, numbers[short], numbers[alone]])
    places = np.concatenate([places, begins[short], begins[alone]])
    lengths = np.concatenate([np.full(int(counts.sum()), longest), sizes[short], asked[alone]])

    letters = np.concatenate([[0], np.cumsum(words.letters)])
    spoken = letters[places + lengths] > letters[places]
    owners, places, lengths = owners[spoken], places[spoken], lengths[spoken]
    hashes = np.zeros(len(places), np.uint64)
    for length in np.unique(lengths).tolist():
        of_length = lengths == length
        hashes[of_length] = mix(rolled(words.hashes, length)[places[of_length]] + np.uint64(length))
    openings = mix(rolled(words.hashes, shortest))[places]
    order = np.lexsort((hashes, owners))
    distinct = np.ones(len(order), np.bool_)
    distinct[1:] = (np.diff(owners[order]) != 0) | (hashes[order][1:] != hashes[order][:-1])
    chosen = order[distinct]
    states = np.full(len(parts), NO_LETTERS, np.int8)
    states[~long_enough] = TOO_SHORT
    states[owners] = LOOKED_FOR
    return _BatchGrams(
        hashes[chosen],
        openings[chosen],
        lengths[chosen].astype(np.int16),
        (owners[chosen] + first).astype(np.int32),
        states,
    )


def items_of(rows: Iterable[dict[str, Any]], set_number: int) -> Iterator[Item]:
    """The items of the lines of an evaluation set's ``items.jsonl``."""
    for row in rows:
        yield Item(set_number, row["id"], tuple(row.get("parts") or (row["text"],)))
