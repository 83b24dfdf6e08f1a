"""The mixture as an artifact."""

from __future__ import annotations

from dataclasses import dataclass

from marin.execution import Artifact
from marin.tokens.mixture.config import RepeatMask
from marin.tokens.shards.artifacts import TokenShards


@dataclass(frozen=True)
class MixturePhase:
    """A stretch of the run: its share of the run, and the share of each cell in it (summing to 1).

    Over the first ``ramp`` of the run in it, the shares move in straight lines from those of the phase before.
    """

    name: str
    share: float
    ramp: float
    weights: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Mixture(Artifact):
    """What a run reads: cells of token shards, and their shares over the phases of the run.

    Beside it lie ``report.json``, ``report.html``, ``shares.svg`` and ``cells.json`` (the public layout of a cell
    table).

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
        simulate_budget: whether a run shorter than ``budget_tokens`` repeats its cells as often as one that long.
        difficulty_bands: bands of difficulty that an epoch of a cell goes through in turn, 1 for none.
        repeat_mask: repeated patterns that are left out of the loss, or None.
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
    simulate_budget: bool
    difficulty_bands: int
    repeat_mask: RepeatMask | None

    @property
    def validation(self) -> tuple[str, ...]:
        """Cells of weight 0 in every phase: never drawn, there to be measured on."""
        return tuple(
            name for name in sorted(self.components) if not any(phase.weights[name] > 0 for phase in self.phases)
        )

    def present(self, places: dict[str, str]) -> str:
        """A line for the console for each cell, and where things lie."""
        rows = [
            f"{cell:24} {shards.tokens:>15,} tokens  "
            + "  ".join(f"{phase.weights[cell]:8.4%}" for phase in self.phases)
            for cell, shards in sorted(self.components.items())
        ]
        head = f"{'cell':24} {'':>22}  " + "  ".join(f"{phase.name:>8}" for phase in self.phases)
        return "\n".join([head, *rows, *(f"{what}: {where}" for what, where in places.items())])
