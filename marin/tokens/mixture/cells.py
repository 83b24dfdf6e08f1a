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
            body = json.loads(text, object_pairs_hook=_without_doubles)
        except json.JSONDecodeError as error:
            raise ValueError(f"this is not a cell table: it is no JSON ({error})") from error
        if not isinstance(body, dict):
            raise ValueError(f"this is not a cell table: it holds a {type(body).__name__}, an object is wanted")
        try:
            given = body.pop("phase_budgets")
            if not isinstance(given, list):
                raise ValueError(f"phase_budgets is {given!r}; give a list of tokens, one for each phase")
            budgets = tuple(_whole("phase_budgets", budget) for budget in given)
            weights = [(name, body.pop(name)) for name in (f"phase{index}_weights" for index in range(len(budgets)))]
            tokenizer, held = body.pop("tokenizer"), body.pop("available_tokens")
        except KeyError as error:
            raise ValueError(f"a cell table needs the key {error.args[0]!r}") from error
        if not isinstance(tokenizer, str):
            raise ValueError(f"tokenizer is {tokenizer!r}; give its name or identity as text")
        for name, table_of in (("available_tokens", held), *weights):
            if not isinstance(table_of, dict):
                raise ValueError(f"{name} is {table_of!r}; give a number for each cell")
        table = cls(
            tokenizer=tokenizer,
            available_tokens={cell: _whole(f"available_tokens[{cell!r}]", number) for cell, number in held.items()},
            phase_budgets=budgets,
            phase_weights=tuple(
                {cell: _number(f"{name}[{cell!r}]", weight) for cell, weight in phase.items()}
                for name, phase in weights
            ),
        )
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


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise ValueError(f"a cell table has the key {key!r} twice")
        seen.add(key)
    return dict(pairs)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{name} is {value!r}; give a finite number")
    return float(value)


def _whole(name: str, value: Any) -> int:
    if _number(name, value) != int(value):
        raise ValueError(f"{name} is {value!r}; tokens are whole numbers")
    return int(value)
