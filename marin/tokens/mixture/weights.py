"""From a configuration and token counts to the share of every cell in every phase."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from marin.tokens.mixture.config import SIMPLEX_TOLERANCE, MixtureConfig

CAP_TOLERANCE = 1e-9
FIT_TOLERANCE = 1e-6
"""Part of its cap by which a cell may be above it where there is next to no choice left."""
ROUND_TOLERANCE = 1e-13
MOST_ROUNDS = 100_000
MOST_PHASES_TOGETHER = 10
"""With more phases than this only each alone and all together are asked for what they need, not each choice."""
TINY_SHARE = 1e-300

Array = npt.NDArray[np.float64]


class InfeasibleMixture(ValueError):
    """The epoch cap cannot be kept."""


@dataclass(frozen=True)
class ResolvedWeights:
    """Shares by phase and cell, each phase summing to 1; and what was changed to get there, for people.

    Attributes:
        phases: for each phase, the share of every cell.
        capped: cells whose weight the epoch cap lowered.
        notes: one sentence for each change.
    """

    phases: tuple[dict[str, float], ...]
    capped: tuple[str, ...]
    notes: tuple[str, ...]


def resolve_weights(config: MixtureConfig, tokens: Mapping[str, int]) -> ResolvedWeights:
    """Shares of every cell, normalised and capped.

    Args:
        config: the mixture.
        tokens: number of tokens of each cell, all above 0.

    Raises:
        ValueError: the weights do not fit the cells.
        InfeasibleMixture: the epoch cap cannot be kept; names the cells.
    """
    config.check_cells(tokens)
    cells = sorted(tokens)
    notes: list[str] = []
    phases: list[dict[str, float]] = []
    for phase in config.phases:
        if phase.basis == "tokens":
            raw = {cell: phase.factor(cell) * tokens[cell] for cell in cells}
            if not sum(raw.values()) > 0:
                raise ValueError(f"phase {phase.name!r}: every cell has factor 0; give at least one a factor above 0")
        else:
            raw = {cell: float(phase.weights[cell]) for cell in cells}
        total = math.fsum(raw.values())
        if phase.basis == "shares" and abs(total - 1) > SIMPLEX_TOLERANCE:
            notes.append(f"the weights of phase {phase.name!r} summed to {total:.6g} and were scaled to sum to 1")
        phases.append({cell: weight / total for cell, weight in raw.items()})
    capped: tuple[str, ...] = ()
    if config.max_epochs is not None and config.budget_tokens is not None:
        phases, capped = _cap(config, tokens, phases, config.max_epochs, config.budget_tokens)
        if capped:
            notes.append(f"the cap of {config.max_epochs:g} epochs lowered the weight of {', '.join(capped)}")
    return ResolvedWeights(tuple(phases), capped, tuple(notes))


def epochs_over(
    config: MixtureConfig, phases: tuple[dict[str, float], ...], tokens: Mapping[str, int]
) -> dict[str, float]:
    """Epochs of each cell over ``budget_tokens`` (over one pass of all tokens when there is no budget)."""
    budget = config.budget_tokens or sum(tokens.values())
    return {
        cell: budget
        * math.fsum(share * weights[cell] for share, weights in zip(config.effective_shares(), phases, strict=True))
        / held
        for cell, held in tokens.items()
    }


def _cap(
    config: MixtureConfig,
    tokens: Mapping[str, int],
    phases: list[dict[str, float]],
    max_epochs: float,
    budget: int,
) -> tuple[list[dict[str, float]], tuple[str, ...]]:
    """The shares nearest to those asked for under which no cell is above the cap.

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
