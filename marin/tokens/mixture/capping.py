"""The shares nearest to those asked for under which no cell is seen more often than the epoch cap allows."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from marin.tokens.mixture.config import InfeasibleMixture, MixtureConfig

CAP_TOLERANCE = 1e-9
FIT_TOLERANCE = 1e-6
"""Part of its cap by which a cell may be above it where there is next to no choice left."""
ROUND_TOLERANCE = 1e-13
MOST_ROUNDS = 100_000
MOST_PHASES_TOGETHER = 10
"""With more phases than this only each alone and all together are asked for what they need, not each choice."""
TINY_SHARE = 1e-300

Array = npt.NDArray[np.float64]


def capped_phases(
    config: MixtureConfig,
    tokens: Mapping[str, int],
    phases: list[dict[str, float]],
    max_epochs: float,
    budget: int,
) -> tuple[list[dict[str, float]], tuple[str, ...]]:
    """Shares by phase and cell under which no cell is above the cap, and the cells that were lowered for it.

    Nearest in relative entropy: each capped cell is lowered by one factor in all phases whose weights are factors, and
    each of these phases is then raised by one factor so that it sums to 1 again (iterative proportional fitting with
    bounds: Csiszár, I-divergence geometry of probability distributions, 1975). Phases of listed shares stay as listed.
    """
    cells = list(phases[0])
    shares = np.array(config.effective_shares())
    free = np.array([phase.basis == "tokens" for phase in config.phases])
    asked = np.array([[weights[cell] for cell in cells] for weights in phases])
    held = max_epochs * np.array([tokens[cell] for cell in cells], dtype=np.float64) / budget
    listed = shares[~free] @ asked[~free]
    if not ((shares @ asked) > held * (1 + CAP_TOLERANCE)).any():
        return phases, ()
    _refuse_listed(cells, listed, held, max_epochs, budget)
    room = np.maximum(held - listed, 0)
    _refuse_crowded(config, cells, asked, room, max_epochs, budget)
    fitted, factors = _fitted(asked[free], shares[free], room)
    if ((shares[free] @ fitted) > room * (1 + FIT_TOLERANCE) + TINY_SHARE).any():
        raise InfeasibleMixture(
            f"{budget:,} tokens at {max_epochs:g} epochs leave next to no choice of weights: the cells hold hardly "
            "more than the run needs; shorten the budget, raise mixture.max_epochs, or add data"
        )
    rows = iter(fitted)
    result = [
        dict(zip(cells, next(rows).tolist(), strict=True)) if f else old for old, f in zip(phases, free, strict=True)
    ]
    return result, tuple(cell for cell, factor in zip(cells, factors, strict=True) if factor < 1 - CAP_TOLERANCE)


def _fitted(asked: Array, shares: Array, room: Array) -> tuple[Array, Array]:
    """Shares by phase and cell after the cap, and the factor of each cell; ``room`` is its largest part of the run."""
    phase_factors = np.ones(len(asked))
    for _ in range(MOST_ROUNDS):
        wanted = (shares * phase_factors) @ asked
        cell_factors = np.minimum(1.0, room / np.maximum(wanted, TINY_SHARE))
        before, phase_factors = phase_factors, 1 / np.maximum(asked @ cell_factors, TINY_SHARE)
        if np.abs(phase_factors / before - 1).max() < ROUND_TOLERANCE:
            break
    return phase_factors[:, None] * asked * cell_factors, cell_factors


def _refuse_listed(cells: list[str], listed: Array, held: Array, max_epochs: float, budget: int) -> None:
    broken = [
        f"{cell} {max_epochs * taken / most:.2f} epochs (at most {most:.3g} of the run)"
        for cell, taken, most in zip(cells, listed.tolist(), held.tolist(), strict=True)
        if taken > most * (1 + CAP_TOLERANCE)
    ]
    if broken:
        raise InfeasibleMixture(
            f"the listed shares break the cap of {max_epochs:g} epochs over {budget:,} tokens: {'; '.join(broken)}; "
            "lower these weights, raise mixture.max_epochs, or use basis 'tokens'"
        )


def _refuse_crowded(
    config: MixtureConfig, cells: list[str], asked: Array, room: Array, max_epochs: float, budget: int
) -> None:
    """Raise where some phases together need more than all cells that they draw from can give (Hall's condition)."""
    rows = [index for index, phase in enumerate(config.phases) if phase.basis == "tokens"]
    shares = config.effective_shares()
    sizes = range(1, len(rows) + 1) if len(rows) <= MOST_PHASES_TOGETHER else (1, len(rows))
    for size in sizes:
        for chosen in itertools.combinations(rows, size):
            drawn = (asked[list(chosen)] > 0).any(axis=0)
            needed, there = sum(shares[index] for index in chosen), float(room[drawn].sum())
            if needed > there * (1 + CAP_TOLERANCE):
                names = ", ".join(repr(config.phases[index].name) for index in chosen)
                raise InfeasibleMixture(
                    f"the phases {names} need {needed * budget:,.0f} tokens of the run of {budget:,}, and the cells "
                    f"that have a weight there can give {there * budget:,.0f} at {max_epochs:g} epochs "
                    f"({', '.join(np.array(cells)[drawn].tolist()[:8])}{', …' if drawn.sum() > 8 else ''}); shorten "
                    "the budget, raise mixture.max_epochs, give these phases more cells, or add data"
                )
