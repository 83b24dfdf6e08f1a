"""From a configuration and token counts to the share of every cell in every phase."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from marin.tokens.mixture.config import SIMPLEX_TOLERANCE, MixtureConfig

CAP_TOLERANCE = 1e-9


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
    """Lower the cells that are seen too often, raise the others in proportion, until no cell is above the cap."""
    adjustable = [phase.basis == "tokens" for phase in config.phases]
    fixed: set[str] = set()
    while True:
        seen = epochs_over(config, tuple(phases), tokens)
        over = sorted(cell for cell, epochs in seen.items() if epochs > max_epochs * (1 + CAP_TOLERANCE))
        if not over:
            return phases, tuple(sorted(fixed))
        listed = {
            cell: budget
            * math.fsum(
                share * weights[cell]
                for share, weights, free in zip(config.effective_shares(), phases, adjustable, strict=True)
                if not free
            )
            for cell in over
        }
        broken = [cell for cell in over if listed[cell] > max_epochs * tokens[cell] * (1 + CAP_TOLERANCE)]
        if broken:
            told = "; ".join(
                f"{cell} {seen[cell]:.2f} epochs (at most {max_epochs * tokens[cell] / budget:.3g} of the run)"
                for cell in broken
            )
            raise InfeasibleMixture(
                f"the listed shares break the cap of {max_epochs:g} epochs over {budget:,} tokens: {told}; "
                "lower these weights, raise mixture.max_epochs, or use basis 'tokens'"
            )
        fixed |= set(over)
        for index, free in enumerate(adjustable):
            if free:
                phases[index] = _lower(phases[index], over, fixed, listed, tokens, max_epochs, seen, budget)


def _lower(
    weights: dict[str, float],
    over: list[str],
    fixed: set[str],
    listed: Mapping[str, float],
    tokens: Mapping[str, int],
    max_epochs: float,
    seen: Mapping[str, float],
    budget: int,
) -> dict[str, float]:
    lowered = dict(weights)
    for cell in over:
        room = max_epochs * tokens[cell] - listed[cell]
        lowered[cell] *= room / (seen[cell] * tokens[cell] - listed[cell])
    spare = 1 - math.fsum(lowered[cell] for cell in fixed)
    free = math.fsum(weight for cell, weight in weights.items() if cell not in fixed)
    if free <= 0:
        if spare <= SIMPLEX_TOLERANCE:
            return lowered
        most = sum(max_epochs * held for held in tokens.values())
        raise InfeasibleMixture(
            f"{budget:,} tokens at {max_epochs:g} epochs need more text than these cells hold "
            f"({most:,.0f} tokens with repeats): every cell with a weight is at its cap; shorten the budget, raise "
            "mixture.max_epochs, or add data"
        )
    return {cell: weight if cell in fixed else weight * spare / free for cell, weight in lowered.items()}
