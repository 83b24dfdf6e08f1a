"""Which sequence of a component its n-th draw is: every sequence once an epoch, shuffled, or from easy to hard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from marin.tokens.mixture.curve import Ints
from marin.tokens.mixture.permutation import U64, key_of, mix64, permute

LARGEST_RANKED = 1 << 31
"""Sequences of a component that can be drawn in bands: products of two such numbers fit 63 bits."""


@dataclass(frozen=True)
class Component:
    """What the order needs to know of a component.

    Attributes:
        name: gives the component permutations of its own.
        sequences: how many there are.
        parts: number of the first sequence of each shard, within which sequences are ordered by their difficulty, and
            ``sequences`` at the end. Used only where an epoch goes from easy to hard.
    """

    name: str
    sequences: int
    parts: tuple[int, ...] = ()


class Draws:
    """From (component, draw) to (epoch, sequence), in closed form.

    An epoch visits each sequence once. With one band its order is a keyed permutation of the whole. With more, each
    shard is cut into that many bands by difficulty; an epoch goes through the bands in turn, and a band is a keyed
    permutation of the sequences of all shards in it. The last epoch of a run, where it is a part of one, takes the same
    part of every band.

    Args:
        components: in their order.
        used: sequences of each component that the run may use, at least 1: fewer than there are when a short run
            repeats as a longer one would. The same ones for every epoch, the same part of every band.
        bands: number of bands.
        seed: seed of the permutations.

    Raises:
        ValueError: bands are asked of a component that is too large for them.
    """

    def __init__(self, components: Sequence[Component], used: Sequence[int], bands: int, seed: int) -> None:
        self.sizes: Ints = np.asarray(used, dtype=np.int64)
        self._bands = bands
        self._keys: U64 = np.array([key_of(seed, component.name) for component in components], dtype=np.uint64)
        self._subset_keys: U64 = np.array(
            [key_of(seed, f"part of {component.name}") for component in components], dtype=np.uint64
        )
        self._ranked = _RankedParts(components, bands)
        self._whole: Ints = self._ranked.edges
        if bands > 1:
            for component in components:
                if component.sequences >= LARGEST_RANKED:
                    raise ValueError(
                        f"component {component.name!r} has {component.sequences} sequences, of which at most "
                        f"{LARGEST_RANKED} can be ordered by difficulty; split it into several components"
                    )
            self._kept: Ints = self._whole * self.sizes[:, None] // self._whole[:, -1:]
        else:
            self._kept = np.stack([np.zeros_like(self.sizes), self.sizes], axis=1)
        self._partial: Ints = np.zeros_like(self.sizes)
        self._last: Ints = np.full_like(self.sizes, -1)

    def end_after(self, drawn: Ints) -> None:
        """Say how many draws of each component the whole run makes, so that a last part of an epoch is spread over
        all bands.
        """
        self._last, self._partial = np.divmod(drawn, self.sizes)

    def sequences(self, components: Ints, draws: Ints) -> tuple[Ints, Ints]:
        """Epoch and sequence of each draw of a component.

        Args:
            components: int64, component of each.
            draws: int64, how often the component was drawn before.
        """
        epochs, place = np.divmod(draws, self.sizes[components])
        keys = self._keys[components] ^ mix64(epochs.astype(np.uint64))
        if self._bands == 1:
            inner = permute(place, self.sizes[components], keys)
            return epochs, self._from_part(inner, self.sizes[components], self._whole[components, -1], components)
        kept = self._kept[components]
        partial = (epochs == self._last[components]) & (place < self._partial[components])
        length = np.where(partial, self._partial[components], self.sizes[components])
        edges = kept * length[:, None] // self.sizes[components][:, None]
        band = (edges[:, 1:] <= place[:, None]).sum(axis=1)
        rows = np.arange(len(band))
        size = kept[rows, band + 1] - kept[rows, band]
        inner = permute(place - edges[rows, band], size, keys ^ mix64(band.astype(np.uint64) + np.uint64(1)))
        first = self._whole[components, band]
        ranks = first + self._from_part(inner, size, self._whole[components, band + 1] - first, components)
        return epochs, self._ranked.sequences_at(components, ranks)

    def _from_part(self, inner: Ints, size: Ints, whole: Ints, components: Ints) -> Ints:
        """The sequences that stand for the numbers ``[0, size)`` where a run uses only so many of ``whole``."""
        reduced = np.flatnonzero(size < whole)
        if reduced.size:
            inner[reduced] = permute(inner[reduced], whole[reduced], self._subset_keys[components[reduced]])
        return inner


class _RankedParts:
    """Sequences of each component ranked by (band, shard, place in the shard).

    Attributes:
        edges: int64 [components, bands + 1], rank at which each band begins, and the number of sequences.
    """

    def __init__(self, components: Sequence[Component], bands: int) -> None:
        self.edges: Ints = np.zeros((len(components), bands + 1), dtype=np.int64)
        self._begins: Ints = np.zeros(len(components) + 1, dtype=np.int64)
        np.cumsum([component.sequences for component in components], out=self._begins[1:])
        firsts: list[Ints] = []
        sizes: list[Ints] = []
        cuts = np.arange(bands + 1, dtype=np.int64)[:, None]
        for index, component in enumerate(components):
            ordered = bands > 1 and len(component.parts) > 1
            parts: Ints = np.asarray(component.parts if ordered else (0, component.sequences), dtype=np.int64)
            within = np.diff(parts)[None, :] * cuts // bands
            self.edges[index] = within.sum(axis=1)
            if bands > 1:
                firsts.append((parts[:-1] + within[:-1]).ravel())
                sizes.append(np.diff(within, axis=0).ravel())
        if bands > 1:
            length = np.concatenate(sizes)
            self._ends: Ints = np.cumsum(length)
            self._shift: Ints = np.concatenate(firsts) - (self._ends - length)

    def sequences_at(self, components: Ints, ranks: Ints) -> Ints:
        """The sequence of each rank of a component."""
        place = self._begins[components] + ranks
        sequences: Ints = place + self._shift[np.searchsorted(self._ends, place, side="right")]
        return sequences


def part_of(sequences: int, fraction: float) -> int:
    """Sequences that a run uses of a component when it repeats as one that is longer by ``1 / fraction``."""
    return max(1, min(sequences, round(sequences * fraction)))
