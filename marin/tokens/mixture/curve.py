"""Shares of components as they change over the places of a run: level within a phase, straight lines in between."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

PACE_RATIO = 4.0
SLOWEST = 1e-18


@dataclass(frozen=True)
class OrderPhase:
    """A phase of the order: its share of the run, and the share of each component.

    Attributes:
        share: share of the run, the ramp at its beginning included.
        shares: share of each component once the ramp is over.
        ramp: share of the run over which the shares move here, in straight lines, from those of the phase before.
    """

    share: float
    shares: tuple[float, ...]
    ramp: float = 0.0


class ShareCurve:
    """The share of each component at each place, as pieces within which it is a straight line.

    Args:
        begins: place at which each piece begins, ascending, the first 0. The last piece has no end.
        first: float64 [pieces, components], shares at the beginning of each piece; each row sums to 1.
        last: the same at its end. The last piece is level.
    """

    def __init__(self, begins: Sequence[int], first: npt.ArrayLike, last: npt.ArrayLike) -> None:
        self._begins: Ints = np.asarray(begins, dtype=np.int64)
        self._first: Floats = np.asarray(first, dtype=np.float64)
        lengths = np.diff(self._begins).astype(np.float64)[:, None]
        middle = (self._first + np.asarray(last, dtype=np.float64)) / 2
        level = np.zeros((1, self.components))
        change = 2 * (middle - self._first)[:-1]
        self._half_slope: Floats = np.concatenate([change / (2 * np.maximum(lengths, 1.0)), level])
        classes = np.round(np.log(np.maximum(middle, SLOWEST)) / np.log(PACE_RATIO))
        self._pace: Ints = classes.astype(np.int64)
        self._before: Floats = np.zeros_like(self._first)
        for piece, length in enumerate(lengths):
            self._before[piece + 1] = _settled(self._before[piece] + length * middle[piece], middle[piece + 1])

        absent = middle == 0
        edges = np.flatnonzero((absent[1:] != absent[:-1]).any(axis=1)) + 1
        self._borders: list[int] = self._begins[edges].tolist()

    @classmethod
    def level(cls, shares: npt.ArrayLike) -> ShareCurve:
        """Shares that never change.

        Raises:
            ValueError: they are not finite, not negative and not all zero.
        """
        row = checked_shares(shares)
        return cls([0], row[None], row[None])

    @classmethod
    def of(cls, phases: Sequence[OrderPhase], total: int) -> ShareCurve:
        """The shares of a run of ``total`` sequences."""
        ends = phase_ends([phase.share for phase in phases], total)
        begins: list[int] = []
        first: list[Floats] = []
        last: list[Floats] = []
        before: Floats | None = None
        for phase, begin, end in zip(phases, (0, *ends), ends, strict=False):
            shares = checked_shares(phase.shares)
            ramp = min(end - begin, math.floor(phase.ramp * total + 0.5)) if before is not None else 0
            if before is not None and ramp:
                begins.append(begin)
                first.append(before)
                last.append(shares)
            begins.append(begin + ramp)
            first.append(shares)
            last.append(shares)
            before = shares
        return cls(begins, np.stack(first), np.stack(last))

    @property
    def components(self) -> int:
        """Number of components."""
        return int(self._first.shape[1])

    def before(self, places: Ints | int, components: Ints) -> Floats:
        """Exact number of sequences of components among the first ``places``: the area under their shares."""
        piece = self._begins.searchsorted(places, side="right") - 1
        passed = places - self._begins[piece]
        rising = self._first[piece, components] + passed * self._half_slope[piece, components]
        area: Floats = self._before[piece, components] + passed * rising
        return area

    def borders_within(self, first: int, end: int) -> list[int]:
        """Places between two others, both left out, at which a component's share begins or ends."""
        return [border for border in self._borders if first < border < end]

    def pace(self, places: Ints | int, components: Ints) -> Ints:
        """Class of the share of components at places: equal where shares differ by less than about a factor of four."""
        pace: Ints = self._pace[self._begins.searchsorted(places, side="right") - 1, components]
        return pace


def _settled(before: Floats, shares: Floats) -> Floats:
    """Exact numbers at a place from which some components have no share: theirs made whole, so that nothing of them is
    left to be drawn later, and the difference, below one sequence in all, spread over the others by their shares.
    """
    ending = np.flatnonzero(shares == 0)
    whole = np.floor(before[ending])
    up = np.argsort(whole - before[ending], kind="stable")[: round(float((before[ending] - whole).sum()))]
    whole[up] += 1
    settled: Floats = before + shares * (before[ending] - whole).sum()
    settled[ending] = whole
    return settled


def checked_shares(shares: npt.ArrayLike) -> Floats:
    """Shares scaled to sum to 1.

    Raises:
        ValueError: they are not finite, not negative and not all zero.
    """
    given = np.asarray(shares, dtype=np.float64)
    if given.ndim != 1 or not given.size or not np.isfinite(given).all() or (given < 0).any() or not given.sum() > 0:
        raise ValueError(f"shares must be finite, not negative and not all zero, got {given.tolist()}")
    scaled: Floats = given / given.sum()
    return scaled


def phase_ends(shares: Sequence[float], total: int) -> tuple[int, ...]:
    """Places at which the phases of a run of ``total`` sequences end."""
    ends = [math.floor(math.fsum(shares[: index + 1]) * total + 0.5) for index in range(len(shares))]
    return (*ends[:-1], total)
