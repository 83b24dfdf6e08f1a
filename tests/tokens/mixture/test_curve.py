from __future__ import annotations

import numpy as np
import pytest

from marin.tokens.mixture.curve import OrderPhase, ShareCurve
from marin.tokens.mixture.draws import Component
from marin.tokens.mixture.order import MixtureOrder

TOTAL = 40_000


def three_phases(cells: int, seed: int) -> list[OrderPhase]:
    """Random shares with tiny and absent ones, and ramps into the second and third phase."""
    generator = np.random.default_rng(seed)
    rows = generator.dirichlet(np.full(cells, 0.4), 3)
    rows[:, :3] = 1e-6
    rows[0, 3], rows[2, 4] = 0.0, 0.0
    rows /= rows.sum(axis=1, keepdims=True)
    shares = [tuple(row.tolist()) for row in rows]
    return [OrderPhase(0.5, shares[0]), OrderPhase(0.3, shares[1], 0.1), OrderPhase(0.2, shares[2], 0.2)]


def plainly_asked(phases: list[OrderPhase], places: int) -> np.ndarray:
    """Exact number before each place, summed up from the share in the middle of each single place."""
    rows, begin, before = [], 0.0, None
    for phase in phases:
        shares = np.array(phase.shares)
        for place in range(round(begin * places), round((begin + phase.share) * places)):
            passed = (place + 0.5) / places - begin
            if before is not None and passed < phase.ramp:
                rows.append(before + (shares - before) * passed / phase.ramp)
            else:
                rows.append(shares)
        begin, before = begin + phase.share, shares
    return np.concatenate([np.zeros((1, len(rows[0]))), np.cumsum(rows, axis=0)])


def test_the_area_under_the_shares_is_the_sum_of_the_shares_of_every_place():
    phases = three_phases(20, 0)
    curve = ShareCurve.of(phases, TOTAL)
    asked = plainly_asked(phases, TOTAL)
    for component in range(20):
        found = curve.before(np.arange(TOTAL + 1), np.full(TOTAL + 1, component))
        assert np.abs(found - asked[:, component]).max() < 1
    whole = sum(curve.before(np.arange(TOTAL + 1), np.full(TOTAL + 1, component)) for component in range(20))
    assert np.abs(whole - np.arange(TOTAL + 1)).max() < 1e-6


@pytest.mark.parametrize("seed", range(4))
def test_every_window_of_a_run_with_ramps_is_within_two_of_what_was_asked(seed: int):
    phases = three_phases(60, seed)
    order = MixtureOrder([Component(f"c{index}", 10) for index in range(60)], phases, TOTAL, 0)
    drawn = order.lookup(0, TOTAL).components
    asked = plainly_asked(phases, TOTAL)
    for component in range(60):
        counts = np.concatenate([[0], np.cumsum(drawn == component)])
        error = counts - asked[:, component]
        assert np.abs(error).max() < 1.5
        for window in (100, 10_000):
            assert np.abs(error[window:] - error[:-window]).max() < 2


@pytest.mark.parametrize("seed", range(4))
def test_a_component_is_drawn_only_where_it_has_a_share(seed: int):
    phases = three_phases(30, seed)
    order = MixtureOrder([Component(f"c{index}", 10) for index in range(30)], phases, TOTAL, 0)
    drawn = order.lookup(0, TOTAL).components
    assert (drawn == 3).nonzero()[0].min() >= 0.5 * TOTAL  # its share begins with the ramp of the second phase
    assert (drawn == 4).any()


def test_a_share_that_ends_leaves_nothing_to_be_drawn_later():
    phases = [OrderPhase(0.7, (0.37, 0.33, 0.3)), OrderPhase(0.3, (0.0, 0.0, 1.0))]
    for total in (10, 101, 999, 12_345):
        drawn = MixtureOrder([Component(name, 5) for name in "abc"], phases, total, 0).lookup(0, total).components
        assert set(drawn[round(0.7 * total + 0.01) :].tolist()) == {2}


def test_components_that_end_together_are_drawn_before_the_border():
    ending = tuple(0.02 + 0.001 * index for index in range(20))
    rest = (1 - sum(ending)) / 3
    before, after = (*ending, rest, rest, rest), (*(0.0,) * 20, 0.2, 0.3, 0.5)
    for total in range(60, 400, 7):
        components = [Component(f"c{index:02d}", 50) for index in range(23)]
        order = MixtureOrder(components, [OrderPhase(0.43, before), OrderPhase(0.57, after)], total, 0)
        assert (order.lookup(0, total).components[order.ends[0] :] >= 20).all()


def test_phases_without_ramps_change_at_one_place():
    phases = [OrderPhase(0.25, (1.0, 0.0)), OrderPhase(0.75, (0.0, 1.0))]
    drawn = MixtureOrder([Component("a", 3), Component("b", 3)], phases, 400, 0).lookup(0, 400).components
    assert drawn.tolist() == [0] * 100 + [1] * 300


def test_a_run_of_one_phase_does_not_depend_on_its_length():
    components = [Component("a", 30), Component("b", 50)]
    short, long = (MixtureOrder(components, [OrderPhase(1.0, (0.3, 0.7))], total, 1) for total in (500, 5_000))
    assert np.array_equal(short.lookup(0, 500).sequences, long.lookup(0, 500).sequences)
