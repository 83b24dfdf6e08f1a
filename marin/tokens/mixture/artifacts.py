"""The mixture as an artifact."""

from __future__ import annotations

from dataclasses import dataclass

from marin.execution import Artifact
from marin.tokens.shards.artifacts import TokenShards


@dataclass(frozen=True)
class MixturePhase:
    """A stretch of the run: its share of the run, and the share of each cell in it (summing to 1)."""

    name: str
    share: float
    weights: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Mixture(Artifact):
    """What a run reads: cells of token shards, and their shares over the phases of the run.

    Beside it lie ``report.json``, ``report.html`` and ``cells.json`` (the public layout of a cell table).

    Attributes:
        components: token shards by cell.
        phases: in the order of the run.
        tokens: tokens of all cells.
        vocab_size: entries of the model's vocabulary.
        pad_id: id to fill up a last sequence with.
        max_epochs: the cap that the weights keep over ``budget_tokens``, or None.
        budget_tokens: tokens over which epochs were counted, or None.
        exhausted: ``"repeat"`` or ``"stop"``: what a run does beyond ``max_epochs`` (or 1).
        tail: ``"pad"`` or ``"drop"``: what happens to the last, partial sequence of a cell.
    """

    components: dict[str, TokenShards]
    phases: tuple[MixturePhase, ...]
    tokens: int
    vocab_size: int
    pad_id: int
    max_epochs: float | None
    budget_tokens: int | None
    exhausted: str
    tail: str

    def present(self, places: dict[str, str]) -> str:
        """A line for the console for each cell, and where things lie."""
        rows = [
            f"{cell:24} {shards.tokens:>15,} tokens  "
            + "  ".join(f"{phase.weights[cell]:8.4%}" for phase in self.phases)
            for cell, shards in sorted(self.components.items())
        ]
        head = f"{'cell':24} {'':>22}  " + "  ".join(f"{phase.name:>8}" for phase in self.phases)
        return "\n".join([head, *rows, *(f"{what}: {where}" for what, where in places.items())])
