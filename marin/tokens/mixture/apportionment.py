"""Which component each slot of an endless sequence belongs to, with exact shares everywhere and no memory.

The slots [0, 2**40) are halved again and again. At each cut, every component has used a whole number of slots; the
number at the middle of an interval is its exact share of the slots so far, rounded down or up, the remainders deciding
which go up, and never outside of what the two ends allow. So a component keeps within one of its exact share (the quota
condition of apportionment), any window is within two, and a slot is found by 40 halvings without looking at the slots
before it. Shares may change along the way: what counts is their sum up to a slot.

Where the two ends leave no such rounding, which takes many shares whose remainders move in step, a component goes past
its quota by a fraction of a slot; the tests and the loader's benchmark measure by how much.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from marin.tokens.mixture.curve import Ints, ShareCurve

ROOT_BITS = 40
BLOCK_BITS = 10
BLOCK = 1 << BLOCK_BITS
SLOTS = 1 << ROOT_BITS


@dataclass
class _Cut:
    """Intervals of equal length, each with the components that have slots in it.

    One row is one component in one interval, ordered by (interval, component).
    ``used`` is what the component has used before the interval, ``room`` its slots within.
    """

    length: int
    start: int
    intervals: int
    interval: Ints
    component: Ints
    used: Ints
    room: Ints


class Apportionment:
    """Slots for components in proportion to their shares. Components without a share get no slot.

    Args:
        curve: the shares, level or changing.
    """

    def __init__(self, curve: ShareCurve) -> None:
        self._curve = curve
        self._path: tuple[tuple[_Cut, Ints], ...] = ()

    def counts(self, slots: int) -> Ints:
        """Slots of each component among the first ``slots``: within one of the exact share."""
        block, rest = divmod(slots, BLOCK)
        components, used = self.block(block)
        return used + np.bincount(components[:rest], minlength=self._curve.components)

    def block(self, index: int) -> tuple[npt.NDArray[np.int16], Ints]:
        """Components of the slots ``[index * BLOCK, (index + 1) * BLOCK)``, and what each has used before them."""
        first = index * BLOCK
        if not 0 <= first < SLOTS:
            raise IndexError(f"slot {first} is beyond the {SLOTS} slots that are apportioned")
        cut, used = self._descend(first)
        while cut.length > 1:
            cut = _split(cut, self._middle(cut))
        return cut.component.astype(np.int16), used

    def _descend(self, first: int) -> tuple[_Cut, Ints]:
        """The block that begins at a slot, as one interval, and what each component has used before it.

        The halvings are kept, so that the next block goes on from the last interval that holds both.
        """
        path = [step for step in self._path if step[0].start <= first < step[0].start + step[0].length]
        if not path:
            path = [(self._root(), np.zeros(self._curve.components, dtype=np.int64))]
        cut, used = path[-1]
        while cut.length > BLOCK:
            middle = self._middle(cut)
            half = cut.length // 2
            if first < cut.start + half:
                cut = _kept(half, cut.start, cut, cut.used, middle)
            else:
                used = used.copy()
                used[cut.component] = cut.used + middle
                cut = _kept(half, cut.start + half, cut, cut.used + middle, cut.room - middle)
            path.append((cut, used))
        self._path = tuple(path)
        return cut, used

    def _root(self) -> _Cut:
        component = np.arange(self._curve.components, dtype=np.int64)
        exact = self._curve.before(SLOTS, component)
        room = np.floor(exact).astype(np.int64)
        missing = SLOTS - int(room.sum())
        order = np.argsort(room - exact, kind="stable")
        room[order[: abs(missing)]] += np.sign(missing)
        start = _Cut(SLOTS, 0, 1, np.zeros_like(room), component, np.zeros_like(room), room)
        return _kept(SLOTS, 0, start, start.used, room)

    def _middle(self, cut: _Cut) -> Ints:
        """Slots of each row in the first half of its interval."""
        half = cut.length // 2
        exact = self._curve.before(cut.start + cut.length * cut.interval + half, cut.component) - cut.used
        taken = np.clip(np.floor(exact).astype(np.int64), 0, cut.room)
        while True:
            missing = half - np.bincount(cut.interval, weights=taken, minlength=cut.intervals).astype(np.int64)
            if not missing.any():
                return taken
            direction = np.sign(missing)[cut.interval]
            movable = np.where(direction > 0, taken < cut.room, (direction < 0) & (taken > 0))
            rows = np.flatnonzero(movable)
            urgency = (exact[rows] - taken[rows]) * direction[rows]
            owner = cut.interval[rows]
            order = np.argsort(4 * owner - np.clip(urgency, -1, 2), kind="stable")
            rows, owner = rows[order], owner[order]
            sizes = np.bincount(owner, minlength=cut.intervals)
            rank = np.arange(rows.size) - (np.cumsum(sizes) - sizes)[owner]
            rows = rows[rank < np.abs(missing)[owner]]
            taken[rows] += direction[rows]


def _kept(length: int, start: int, cut: _Cut, used: Ints, room: Ints) -> _Cut:
    """One half of a lone interval, without the components that have no slot in it."""
    rows = np.flatnonzero(room > 0)
    return _Cut(length, start, 1, cut.interval[rows], cut.component[rows], used[rows], room[rows])


def _split(cut: _Cut, middle: Ints) -> _Cut:
    """Both halves of every interval."""
    interval = np.concatenate([2 * cut.interval, 2 * cut.interval + 1])
    component = np.concatenate([cut.component, cut.component])
    used = np.concatenate([cut.used, cut.used + middle])
    room = np.concatenate([middle, cut.room - middle])
    rows = np.flatnonzero(room > 0)
    rows = rows[np.argsort(interval[rows], kind="stable")]
    return _Cut(cut.length // 2, cut.start, 2 * cut.intervals, interval[rows], component[rows], used[rows], room[rows])
