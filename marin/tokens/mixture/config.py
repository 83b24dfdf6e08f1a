"""Weights of cells over the phases of a run, as they are written down. Free of heavy imports."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

SHARE_TOLERANCE = 1e-9
SIMPLEX_TOLERANCE = 1e-6
MOST_BANDS = 256
LEAST_CACHE_BYTES = 64 * 1024**2


class InfeasibleMixture(ValueError):
    """The epoch cap cannot be kept."""


def is_pattern(name: str) -> bool:
    """Whether a name in a table of weights stands for several cells."""
    return any(mark in name for mark in "*?[")


@dataclass(frozen=True)
class Phase:
    """A stretch of the run with constant weights, but for a ramp that may lead into it.

    Attributes:
        name: for people.
        share: share of the run, above 0; the shares of all phases sum to 1. The ramp is within it.
        basis: what ``weights`` are. ``"shares"``: the share of sequences of each cell, every cell named.
            ``"tokens"``: factors on the number of tokens that each cell holds; a cell that is not named has factor 1.
        weights: by cell. A factor may also stand for all cells that match a shell pattern, such as ``*q1``; a cell's
            own name comes before a pattern, and no cell may match two patterns.
        ramp: share of the run, at the beginning of the phase, over which every cell's share moves in a straight line
            from that of the phase before. At most ``share``; the first phase has none.
    """

    name: str
    share: float = 1.0
    basis: Literal["shares", "tokens"] = "tokens"
    weights: dict[str, float] = field(default_factory=dict)
    ramp: float = 0.0

    def factor(self, cell: str) -> float:
        """The factor on a cell's tokens, of a phase on basis ``"tokens"``."""
        if cell in self.weights:
            return self.weights[cell]
        patterns = [name for name in self.weights if is_pattern(name) and fnmatch.fnmatchcase(cell, name)]
        if len(patterns) > 1:
            raise ValueError(
                f"phase {self.name!r}: {cell!r} matches {' and '.join(map(repr, sorted(patterns)))}; "
                "give it a weight of its own, or narrow one of them"
            )
        return self.weights[patterns[0]] if patterns else 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.share) and 0 < self.share <= 1):
            raise ValueError(
                f"phase {self.name!r}: share is {self.share}; it is a share of the run, above 0 and at most 1"
            )
        if not (math.isfinite(self.ramp) and 0 <= self.ramp <= self.share):
            raise ValueError(
                f"phase {self.name!r}: ramp is {self.ramp}; it is a share of the run, from 0 to the phase's own share "
                f"of {self.share}"
            )
        if self.basis not in ("shares", "tokens"):
            raise ValueError(f"phase {self.name!r}: basis is {self.basis!r}; use 'shares' or 'tokens'")
        for cell, weight in self.weights.items():
            if isinstance(weight, (str, bool)) or not math.isfinite(weight) or weight < 0:
                raise ValueError(
                    f"phase {self.name!r}: the weight of {cell!r} is {weight!r}; weights are finite numbers, 0 or more"
                )
        if self.basis == "shares" and not sum(self.weights.values()) > 0:
            cells = ", ".join(sorted(self.weights)) or "none named"
            raise ValueError(f"phase {self.name!r}: no cell has a weight above 0 (cells: {cells}); give at least one")


@dataclass(frozen=True)
class RepeatMask:
    """Leaves tokens out of the loss where a short pattern repeats itself many times over, as in broken pages.

    Attributes:
        longest_period: patterns of 1 to this many tokens are looked for.
        repeats: a stretch counts when its pattern stands in it at least this many times in a row. Its first occurrence
            stays in the loss.
    """

    longest_period: int = 13
    repeats: int = 32

    def __post_init__(self) -> None:
        if self.longest_period < 1:
            raise ValueError(f"repeat_mask.longest_period is {self.longest_period}; it must be at least 1 token")
        if self.repeats < 2:
            raise ValueError(f"repeat_mask.repeats is {self.repeats}; a repeat is at least 2 in a row")


@dataclass(frozen=True)
class LoaderConfig:
    """How a rank reads; never which sequences.

    Attributes:
        ahead: micro-batches that are read before they are asked for; 0 reads each when it is.
        threads: how many are read at the same time.
        cache_bytes: what the blocks of shards in an object store may take on the local disk, for all ranks of a machine
            together; shards on the local disk need none.
    """

    ahead: int = 4
    threads: int = 2
    cache_bytes: int = 64 * 1024**3

    def __post_init__(self) -> None:
        if self.ahead < 0:
            raise ValueError(f"loader.ahead is {self.ahead}; give 0 or more micro-batches")
        if self.threads < 1:
            raise ValueError(f"loader.threads is {self.threads}; give at least 1")
        if self.cache_bytes < LEAST_CACHE_BYTES:
            raise ValueError(f"loader.cache_bytes is {self.cache_bytes}; give at least {LEAST_CACHE_BYTES} (64 MiB)")


@dataclass(frozen=True)
class MixtureConfig:
    """A mixture of cells.

    Attributes:
        phases: in the order of the run.
        budget_tokens: tokens over which epochs are counted for the cap, split over the phases by their shares. The
            run itself may be longer or shorter.
        max_epochs: no cell is seen more often than this over ``budget_tokens``. Factors on token counts are lowered
            to keep it; listed shares that break it are refused.
        exhausted: what a run does that needs more epochs of a cell than ``max_epochs`` (or 1): go on with another
            epoch and report it, or refuse to start.
        normalise: scale listed weights that do not sum to 1, and say so; otherwise they are refused.
        tail: what happens to the last, partial sequence of a cell: padded and masked, or dropped and counted.
        simulate_budget: a run that is shorter than ``budget_tokens`` uses only its part of the sequences of each cell,
            so that it repeats them as often as the full run would.
        difficulty_bands: an epoch of a cell goes from easy to hard in this many bands, shuffled within each; 1 shuffles
            the whole. More need token shards whose documents are ordered (``tokenize.order_by``).
        repeat_mask: which repeated patterns are left out of the loss, or None.
    """

    phases: tuple[Phase, ...] = (Phase("all"),)
    budget_tokens: int | None = None
    max_epochs: float | None = None
    exhausted: Literal["repeat", "stop"] = "repeat"
    normalise: bool = True
    tail: Literal["pad", "drop"] = "pad"
    simulate_budget: bool = False
    difficulty_bands: int = 1
    repeat_mask: RepeatMask | None = None

    def __post_init__(self) -> None:
        if not self.phases:
            raise ValueError("mixture.phases is empty; a run has at least one phase")
        names = [phase.name for phase in self.phases]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"mixture.phases has two phases called {name!r}; names must differ")
        total = math.fsum(phase.share for phase in self.phases)
        if abs(total - 1) > SHARE_TOLERANCE:
            shares = ", ".join(f"{phase.name} {phase.share}" for phase in self.phases)
            raise ValueError(f"the shares of mixture.phases sum to {total}, not 1 ({shares})")
        if self.phases[0].ramp:
            raise ValueError(
                f"phase {self.phases[0].name!r}: ramp is {self.phases[0].ramp}; the first phase has none before it to "
                "come from, set 0"
            )
        if self.budget_tokens is not None and self.budget_tokens < 1:
            raise ValueError(f"mixture.budget_tokens is {self.budget_tokens}; it must be at least 1, or null")
        if self.max_epochs is not None:
            if not (math.isfinite(self.max_epochs) and self.max_epochs > 0):
                raise ValueError(f"mixture.max_epochs is {self.max_epochs}; it must be above 0, or null for no cap")
            if self.budget_tokens is None:
                raise ValueError(
                    "mixture.max_epochs needs mixture.budget_tokens: the tokens over which epochs are counted"
                )
        if self.simulate_budget and self.budget_tokens is None:
            raise ValueError("mixture.simulate_budget needs mixture.budget_tokens: the tokens of the run to simulate")
        if not 1 <= self.difficulty_bands <= MOST_BANDS:
            raise ValueError(
                f"mixture.difficulty_bands is {self.difficulty_bands}; give 1 (shuffle all) to {MOST_BANDS}"
            )
        for name, value, allowed in (
            ("exhausted", self.exhausted, ("repeat", "stop")),
            ("tail", self.tail, ("pad", "drop")),
        ):
            if value not in allowed:
                raise ValueError(f"mixture.{name} is {value!r}; use {allowed[0]!r} or {allowed[1]!r}")
        self._check_listed()

    def effective_shares(self) -> tuple[float, ...]:
        """The share of the run that each phase's weights count for: of a ramp, one half for each of its two sides."""
        after = (*(phase.ramp for phase in self.phases[1:]), 0.0)
        return tuple(phase.share - (phase.ramp - left) / 2 for phase, left in zip(self.phases, after, strict=True))

    def _check_listed(self) -> None:
        listed = [phase for phase in self.phases if phase.basis == "shares"]
        for phase in listed:
            for cell in sorted(set(listed[0].weights) ^ set(phase.weights)):
                owner, other = (phase, listed[0]) if cell in phase.weights else (listed[0], phase)
                raise ValueError(
                    f"cell {cell!r} has a weight in phase {owner.name!r} and none in phase {other.name!r}; "
                    "name it in both, with 0 where it is left out"
                )
            total = math.fsum(phase.weights.values())
            if not self.normalise and abs(total - 1) > SIMPLEX_TOLERANCE:
                raise ValueError(
                    f"the weights of phase {phase.name!r} sum to {total}, not 1; correct them, or set mixture.normalise"
                )

    def check_cells(self, cells: Iterable[str]) -> None:
        """Refuse weights for cells that are not there, and listed phases that leave a cell out.

        An experiment calls this while its graph is built; the mixture step calls it again.

        Raises:
            ValueError: naming phase and cell.
        """
        known = sorted(cells)
        if not known:
            raise ValueError("a mixture needs at least one cell; none was given")
        for phase in self.phases:
            for cell in sorted(phase.weights):
                pattern = phase.basis == "tokens" and is_pattern(cell)
                if cell not in known and not (pattern and fnmatch.filter(known, cell)):
                    raise ValueError(f"phase {phase.name!r}: no such cell {cell!r}; cells are {', '.join(known)}")
            for cell in known:
                if phase.basis == "tokens":
                    phase.factor(cell)
                if phase.basis == "shares" and cell not in phase.weights:
                    raise ValueError(
                        f"phase {phase.name!r}: cell {cell!r} has no weight; write 0 where it is to be left out"
                    )
