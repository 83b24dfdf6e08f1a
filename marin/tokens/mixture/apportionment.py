"""Which component each slot of an endless sequence belongs to, with exact shares everywhere and no memory.

The slots [0, 2**40) are halved again and again. At each cut, every component has used a whole number of slots; the
number at the middle of an interval is its exact share of the slots so far, rounded down or up, the remainders deciding
which go up, and never outside of what the two ends allow. So a component keeps within one of its exact share (the quota
condition of apportionment), any window is within two, and a slot is found by 40 halvings without looking at the slots
before it. Shares may change along the way: what counts is their sum up to a slot.

Which components are rounded up decides how well all of them can be rounded elsewhere. Remainders alone are not enough:
many slow components that stand at one half would keep as many fast ones waiting. So they are rounded up evenly over
components of like share, and by remainders among these. There are mixtures of many equal shares in which a component
still passes its quota for a while, by a quarter of a slot and seldom by half of one where it was looked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from marin.tokens.mixture.curve import Floats, Ints, ShareCurve

ROOT_BITS = 40
BLOCK_BITS = 10
BLOCK = 1 << BLOCK_BITS
SLOTS = 1 << ROOT_BITS

TINY = 1e-9


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
        at = cut.start + cut.length * cut.interval + half
        exact = self._curve.before(at, cut.component) - cut.used
        pace = self._curve.pace(at, cut.component)
        borders = self._curve.borders_within(cut.start, cut.start + cut.length * cut.intervals)
        least, most = self._bounds(cut, at) if borders else (np.zeros_like(cut.room), cut.room)
        taken = np.clip(np.floor(exact).astype(np.int64), least, most)
        for border in borders:
            self._fit_at_border(border, cut, exact, taken, least, most)
        while True:
            missing = half - np.bincount(cut.interval, weights=taken, minlength=cut.intervals).astype(np.int64)
            if not missing.any():
                return taken
            direction = np.sign(missing)[cut.interval]
            movable = np.where(direction > 0, taken < most, (direction < 0) & (taken > least))
            rows = np.flatnonzero(movable)
            if borders and not np.isin(np.flatnonzero(missing), cut.interval[rows]).all():
                # So many components begin or end here that some must stand on the other side of their border.
                least, most = np.zeros_like(cut.room), cut.room
                continue
            left = np.clip((exact[rows] - taken[rows]) * direction[rows], -1, 2)
            rows = rows[_first_to_move(cut.interval[rows], pace[rows], left, np.abs(missing))]
            taken[rows] += direction[rows]

    def _bounds(self, cut: _Cut, at: Ints) -> tuple[Ints, Ints]:
        """Least and most slots of each row in the first half: all that it has where its share ends before the second,
        none where its share begins there.
        """
        least, most = np.zeros_like(cut.room), cut.room.copy()
        half = cut.length // 2
        first, middle, last = (self._curve.before(at + shift, cut.component) for shift in (-half, 0, half))
        least[last == middle] = cut.room[last == middle]
        most[middle == first] = 0
        return least, most

    def _fit_at_border(self, border: int, cut: _Cut, exact: Floats, taken: Ints, least: Ints, most: Ints) -> None:
        """Where the border of a share lies within a half, leave to the components that end there no more slots than
        come before it, and to those that begin there no more than come after it. Changes ``taken`` and its bounds in
        place.
        """
        half = cut.length // 2
        interval, offset = divmod(border - cut.start, cut.length)
        rows = np.flatnonzero(cut.interval == interval)
        begin = cut.start + interval * cut.length
        edge = begin if offset < half else begin + cut.length
        there, here = (self._curve.before(place, cut.component[rows]) for place in (edge, border))
        rows = rows[there == here]
        if offset > half:
            excess = int((cut.room[rows] - taken[rows]).sum()) - (offset - half)
            _shift(rows, excess, 1, exact, taken, most)
            least[rows] = np.maximum(least[rows], taken[rows]) if excess > 0 else least[rows]
        elif offset < half:
            excess = int(taken[rows].sum()) - (half - offset)
            _shift(rows, excess, -1, exact, taken, least)
            most[rows] = np.minimum(most[rows], taken[rows]) if excess > 0 else most[rows]


def _shift(rows: Ints, excess: int, direction: int, exact: Floats, taken: Ints, bound: Ints) -> None:
    """Move ``excess`` slots of some rows into the first half (direction 1) or out of it (-1), those first that are
    furthest behind or ahead, and none beyond its bound.
    """
    while excess > 0:
        movable = rows[taken[rows] * direction < bound[rows] * direction]
        if not movable.size:
            return
        order = np.argsort((taken[movable] - exact[movable]) * direction, kind="stable")[:excess]
        taken[movable[order]] += direction
        excess -= order.size


def _first_to_move(interval: Ints, pace: Ints, left: Floats, wanted: Ints) -> Ints:
    """Rows to round on, ``wanted`` in each interval: those of largest remainder, evenly over components of like pace.

    Fast and slow components round on in proportion to what each of the two are due together. If the slow ones, which
    can wait, took the places of fast ones, these would fall behind.

    Args:
        interval: interval of each row, ascending.
        pace: class of each row's share.
        left: remainder of each row, at most 1 where it may be rounded on within its quota.
        wanted: number of rows of each interval.
    """
    order = np.lexsort((-left, pace, interval))
    interval, pace, left = interval[order], pace[order], left[order]
    new = np.ones(interval.size, dtype=np.bool_)
    new[1:] = (interval[1:] != interval[:-1]) | (pace[1:] != pace[:-1])
    begins = np.flatnonzero(new)
    group = np.cumsum(new) - 1
    owner = interval[begins]
    due: Floats = np.bincount(group, weights=np.minimum(np.maximum(left, 0), 1)).astype(np.float64)
    total = np.bincount(owner, weights=due, minlength=wanted.size)
    due = due * (wanted / np.maximum(total, TINY))[owner]
    places = np.floor(due + TINY).astype(np.int64)
    short = np.round(np.bincount(owner, weights=due - places, minlength=wanted.size)).astype(np.int64)
    places[_largest_of_each(owner, due - places, short)] += 1
    within = np.arange(interval.size) - begins[group] < places[group]
    return order[_largest_of_each(interval, left + 4 * within, wanted)]


def _largest_of_each(owner: Ints, values: Floats, number: Ints) -> Ints:
    """Indices of the largest ``number`` values of each owner."""
    if number.size == 1:
        return np.argsort(-values, kind="stable")[: number[0]]
    order = np.lexsort((-values, owner))
    sizes = np.bincount(owner, minlength=number.size)
    rank = np.arange(owner.size) - (np.cumsum(sizes) - sizes)[owner[order]]
    return order[rank < number[owner[order]]]


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
