"""The public layout of a table of cells: available tokens, phase budgets and dense weights by phase, as JSON."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from marin.tokens.mixture.config import MixtureConfig, Phase


@dataclass(frozen=True)
class CellTable:
    """A mixture by cell, as it is published.

    Attributes:
        tokenizer: name or identity of the tokenizer that the counts were made with.
        available_tokens: tokens of each cell.
        phase_budgets: tokens of each phase.
        phase_weights: for each phase, the weight of every cell.
    """

    tokenizer: str
    available_tokens: dict[str, int]
    phase_budgets: tuple[int, ...]
    phase_weights: tuple[dict[str, float], ...]

    def __post_init__(self) -> None:
        if not self.phase_budgets or len(self.phase_budgets) != len(self.phase_weights):
            raise ValueError(
                f"a cell table has one table of weights for each phase budget: {len(self.phase_budgets)} budgets, "
                f"{len(self.phase_weights)} tables"
            )
        for budget in self.phase_budgets:
            if budget < 1:
                raise ValueError(f"phase_budgets holds {budget}; budgets are tokens, at least 1")
        for cell, held in self.available_tokens.items():
            if held < 1:
                raise ValueError(f"available_tokens[{cell!r}] is {held}; a cell holds at least one token")
        self.config().check_cells(self.available_tokens)

    @classmethod
    def from_json(cls, text: str) -> CellTable:
        """Read the public layout (``phase0_weights``, ``phase1_weights`` … beside ``phase_budgets``).

        Raises:
            ValueError: a key is missing or unknown, or the weights do not fit the cells.
        """
        try:
            body: dict[str, Any] = json.loads(text)
            budgets = tuple(int(budget) for budget in body.pop("phase_budgets"))
            weights = tuple(body.pop(f"phase{index}_weights") for index in range(len(budgets)))
            table = cls(
                tokenizer=str(body.pop("tokenizer")),
                available_tokens={cell: int(held) for cell, held in body.pop("available_tokens").items()},
                phase_budgets=budgets,
                phase_weights=tuple({cell: float(weight) for cell, weight in phase.items()} for phase in weights),
            )
        except KeyError as error:
            raise ValueError(f"a cell table needs the key {error.args[0]!r}") from error
        except (TypeError, AttributeError) as error:
            raise ValueError(f"this is not a cell table: {error}") from error
        if body:
            raise ValueError(f"a cell table has no key {sorted(body)[0]!r}")
        return table

    def to_json(self) -> str:
        """The public layout."""
        body: dict[str, Any] = {
            "tokenizer": self.tokenizer,
            "available_tokens": self.available_tokens,
            "phase_budgets": list(self.phase_budgets),
        }
        body |= {f"phase{index}_weights": weights for index, weights in enumerate(self.phase_weights)}
        return json.dumps(body, indent=2)

    def config(self, max_epochs: float | None = None) -> MixtureConfig:
        """The mixture that this table describes, with phases as shares of the whole budget."""
        total = sum(self.phase_budgets)
        shares = [budget / total for budget in self.phase_budgets[:-1]]
        shares.append(1 - math.fsum(shares))
        return MixtureConfig(
            phases=tuple(
                Phase(f"phase{index}", share, "shares", dict(weights))
                for index, (share, weights) in enumerate(zip(shares, self.phase_weights, strict=True))
            ),
            budget_tokens=total,
            max_epochs=max_epochs,
        )
