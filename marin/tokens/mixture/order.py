"""Which sequence stands at place k of a run: a pure function of (shares, sizes, seed, k)."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from marin.tokens.mixture.apportionment import BLOCK, Apportionment, Ints
from marin.tokens.mixture.permutation import key_of, mix64, permute

CACHED_BLOCKS = 8


@dataclass(frozen=True)
class SequenceRefs:
    """Sequences of a run, in order: component (index), epoch of that component, number of the sequence within it."""

    components: npt.NDArray[np.int16]
    epochs: Ints
    sequences: Ints


@dataclass(frozen=True)
class OrderPhase:
    """A phase of the order: its share of the run and the share of each component."""

    share: float
    shares: tuple[float, ...]


class MixtureOrder:
    """The order of a run of ``total`` sequences.

    Components are apportioned to places exactly (see :class:`Apportionment`), so the draws of a component before any
    place are known in closed form; its n-th draw is sequence ``n mod size`` of epoch ``n // size``, under a keyed
    permutation of that epoch. Finding a place costs the same anywhere in the run.

    Args:
        names: component names; each has its own permutations.
        sizes: sequences of each component, at least 1 where it has a share.
        phases: in order; their shares sum to 1.
        total: sequences of the run.
        seed: seed of the permutations.
    """

    def __init__(
        self, names: Sequence[str], sizes: Sequence[int], phases: Sequence[OrderPhase], total: int, seed: int
    ) -> None:
        if total < 1:
            raise ValueError(f"total_sequences is {total}; a run has at least one sequence")
        for name, size, shares in zip(names, sizes, zip(*(phase.shares for phase in phases), strict=True), strict=True):
            if size < 1 and any(share > 0 for share in shares):
                raise ValueError(f"component {name!r} has a share of the mixture but not one whole sequence")
        self.names = tuple(names)
        self.total = total
        self.sizes: Ints = np.maximum(1, np.asarray(sizes, dtype=np.int64))
        self._keys = np.array([key_of(seed, name) for name in names], dtype=np.uint64)
        self._phases = [Apportionment(phase.shares) for phase in phases]
        self.ends = phase_ends([phase.share for phase in phases], total)
        self._bases: list[Ints] = [np.zeros(len(self.names), dtype=np.int64)]
        for phase, begin, end in zip(self._phases, (0, *self.ends), self.ends, strict=False):
            self._bases.append(self._bases[-1] + phase.counts(end - begin))
        self._block = functools.lru_cache(maxsize=CACHED_BLOCKS)(self._make_block)

    def counts(self, place: int) -> Ints:
        """Sequences of each component among the first ``place`` of the run."""
        if not 0 <= place <= self.total:
            raise IndexError(f"place {place} is not within the run of {self.total} sequences")
        index = self._phase_at(place)
        begin = 0 if index == 0 else self.ends[index - 1]
        return self._bases[index] + self._phases[index].counts(place - begin)

    def lookup(self, first: int, count: int) -> SequenceRefs:
        """The sequences at places ``first`` to ``first + count - 1``.

        Raises:
            IndexError: a place lies outside the run.
        """
        if count < 0 or first < 0 or first + count > self.total:
            raise IndexError(f"places {first} to {first + count} are not within the run of {self.total} sequences")
        parts: list[SequenceRefs] = []
        place, end = first, first + count
        while place < end:
            phase = self._phase_at(place)
            begin = 0 if phase == 0 else self.ends[phase - 1]
            block, offset = divmod(place - begin, BLOCK)
            taken = min(BLOCK - offset, end - place, self.ends[phase] - place)
            found = self._block(phase, block)
            span = slice(offset, offset + taken)
            parts.append(SequenceRefs(found.components[span], found.epochs[span], found.sequences[span]))
            place += taken
        if len(parts) == 1:
            return parts[0]
        return SequenceRefs(
            np.concatenate([np.empty(0, np.int16), *(part.components for part in parts)]),
            np.concatenate([np.empty(0, np.int64), *(part.epochs for part in parts)]),
            np.concatenate([np.empty(0, np.int64), *(part.sequences for part in parts)]),
        )

    def _phase_at(self, place: int) -> int:
        for index, end in enumerate(self.ends):
            if place < end:
                return index
        return len(self.ends) - 1

    def _make_block(self, phase: int, block: int) -> SequenceRefs:
        components, used = self._phases[phase].block(block)
        order = np.argsort(components, kind="stable")
        sizes = np.bincount(components, minlength=len(self.names))
        rank = np.empty(len(components), dtype=np.int64)
        rank[order] = np.arange(len(components)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        draws = self._bases[phase][components] + used[components] + rank
        epochs, within = np.divmod(draws, self.sizes[components])
        keys = self._keys[components] ^ mix64(epochs.astype(np.uint64))
        return SequenceRefs(components, epochs, permute(within, self.sizes[components], keys))


def phase_ends(shares: Sequence[float], total: int) -> tuple[int, ...]:
    """Places at which the phases of a run of ``total`` sequences end."""
    ends = [math.floor(math.fsum(shares[: index + 1]) * total + 0.5) for index in range(len(shares))]
    return (*ends[:-1], total)
