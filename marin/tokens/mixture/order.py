"""Which sequence stands at place k of a run: a pure function of (shares, sizes, seed, k)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from marin.tokens.mixture.apportionment import BLOCK, Apportionment
from marin.tokens.mixture.curve import Ints, OrderPhase, ShareCurve, phase_ends
from marin.tokens.mixture.draws import Component, Draws, part_of

CACHED_BLOCKS = 8


@dataclass(frozen=True)
class SequenceRefs:
    """Sequences of a run, in order: component (index), epoch of that component, number of the sequence within it."""

    components: npt.NDArray[np.int16]
    epochs: Ints
    sequences: Ints


class MixtureOrder:
    """The order of a run of ``total`` sequences.

    Components are apportioned to places exactly (see :class:`Apportionment`), so the draws of a component before any
    place are known in closed form, and so is the sequence that a draw stands for (see :class:`Draws`). Finding a place
    costs the same anywhere in the run.

    Args:
        components: each with at least one sequence where it has a share.
        phases: in order; their shares sum to 1.
        total: sequences of the run.
        seed: seed of the permutations.
        bands: bands of difficulty that an epoch goes through in turn; 1 for none.
        fraction: part of the sequences of each component that the run may use, above 0 and at most 1.
    """

    def __init__(
        self,
        components: Sequence[Component],
        phases: Sequence[OrderPhase],
        total: int,
        seed: int,
        *,
        bands: int = 1,
        fraction: float = 1.0,
    ) -> None:
        if total < 1:
            raise ValueError(f"total_sequences is {total}; a run has at least one sequence")
        shares = zip(*(phase.shares for phase in phases), strict=True)
        for component, row in zip(components, shares, strict=True):
            if component.sequences < 1 and any(share > 0 for share in row):
                raise ValueError(f"component {component.name!r} has a share of the mixture but not one whole sequence")
        self.names = tuple(component.name for component in components)
        self.total = total
        self.ends = phase_ends([phase.share for phase in phases], total)
        self.curve = ShareCurve.of(phases, total)
        self._apportionment = Apportionment(self.curve)
        used = [part_of(component.sequences, fraction) for component in components]
        there = [Component(item.name, max(1, item.sequences), item.parts) for item in components]
        self._draws = Draws(there, used, bands, seed)
        self._block = functools.lru_cache(maxsize=CACHED_BLOCKS)(self._make_block)
        self._draws.end_after(self.counts(total))

    @property
    def sizes(self) -> Ints:
        """Sequences of an epoch of each component."""
        return self._draws.sizes

    def counts(self, place: int) -> Ints:
        """Sequences of each component among the first ``place`` of the run."""
        if not 0 <= place <= self.total:
            raise IndexError(f"place {place} is not within the run of {self.total} sequences")
        return self._apportionment.counts(place)

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
            block, offset = divmod(place, BLOCK)
            taken = min(BLOCK - offset, end - place)
            found = self._block(block)
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

    def _make_block(self, block: int) -> SequenceRefs:
        components, used = self._apportionment.block(block)
        order = np.argsort(components, kind="stable")
        sizes = np.bincount(components, minlength=len(self.names))
        rank = np.empty(len(components), dtype=np.int64)
        rank[order] = np.arange(len(components)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        epochs, sequences = self._draws.sequences(components.astype(np.int64), used[components] + rank)
        return SequenceRefs(components, epochs, sequences)
