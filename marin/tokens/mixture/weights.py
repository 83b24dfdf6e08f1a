"""From a configuration and token counts to the share of every cell in every phase."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from marin.tokens.mixture.config import SIMPLEX_TOLERANCE, MixtureConfig


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
        from marin.tokens.mixture.capping import capped_phases

        phases, capped = capped_phases(config, tokens, phases, config.max_epochs, config.budget_tokens)
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
