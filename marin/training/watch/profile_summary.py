"""What a profile says, on one page; and what differs between two. Imports nothing heavy."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from marin.execution import StepError

SCHEMA = 1
SHOWN = 25
"""Operators on the page, and lines of a difference."""


@dataclass(frozen=True)
class Operator:
    """One operator or kernel: how often it ran in a step, and its own seconds of a step, without what it called."""

    name: str
    where: str
    """cpu or cuda."""
    calls: float
    seconds: float


@dataclass(frozen=True)
class ProfileSummary:
    """A window of steps on rank 0. All figures are of one step: medians for times, means for operators.

    `phases` are wall seconds; `exchange` lies within forward and backward. `peak_flops` is the measured speed of
    matrix products of all ranks, `flops` what the model achieved.
    """

    first_step: int
    steps: int
    device: str
    ranks: int
    seconds: float
    tokens: float
    flops: float
    peak_flops: float
    phases: Mapping[str, float]
    memory: Mapping[str, Any]
    operators: tuple[Operator, ...]

    @property
    def exchange_share(self) -> float:
        """Share of the step inside the expert exchange."""
        return self.phases.get("exchange", 0.0) / self.seconds if self.seconds else 0.0

    def to_bytes(self) -> bytes:
        """The summary as JSON."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1).encode()

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> ProfileSummary:
        """Inverse of `to_bytes`; raises StepError for anything else."""
        try:
            fields = json.loads(data)
            if fields.pop("schema") != SCHEMA:
                raise ValueError("another schema")
            fields["operators"] = tuple(Operator(**one) for one in fields["operators"])
            return cls(**fields)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise StepError(f"{where} is no summary of a profile: {error}") from error


def page(summary: ProfileSummary) -> str:
    """The summary as Markdown."""
    last = summary.first_step + summary.steps - 1
    lines = [
        f"# Profile of steps {summary.first_step} to {last}",
        "",
        f"Rank 0 of {summary.ranks} on {summary.device}. {_speed(summary)}",
        "",
        *table(("phase", "seconds", "share"), _phases(summary)),
        "",
        f"The expert exchange takes {summary.exchange_share:.1%} of the step, within forward and backward.",
        "",
        *table(("memory", ""), [(name, _said(value)) for name, value in summary.memory.items()]),
        "",
        f"Operators by their own time, the first {SHOWN} of {len(summary.operators)}:",
        "",
        *table(("operator", "on", "calls", "ms", "share"), _operators(summary)),
    ]
    return "\n".join(lines) + "\n"


def _speed(summary: ProfileSummary) -> str:
    share = summary.flops / summary.peak_flops if summary.peak_flops else 0.0
    speed = summary.tokens / summary.seconds
    return (
        f"One step: {summary.seconds:.4g} s, {summary.tokens:.0f} tokens, {speed:.0f} tokens/s, "
        f"{summary.flops:.3g} FLOP/s ({share:.1%} of the measured {summary.peak_flops:.3g})."
    )


def difference(before: ProfileSummary, after: ProfileSummary) -> str:
    """What changed from one summary to another, largest change of time first, as Markdown."""
    lines = [
        f"Step: {before.seconds:.4g} s → {after.seconds:.4g} s ({_percent(before.seconds, after.seconds)}).",
        f"FLOP/s: {before.flops:.3g} → {after.flops:.3g}.",
        f"Exchange: {before.exchange_share:.1%} → {after.exchange_share:.1%} of the step.",
        "",
        *table(("phase", "before s", "after s", "change"), _changes(before.phases, after.phases)),
        "",
        *table(
            ("operator", "before ms", "after ms", "change"),
            _changes(_milliseconds(before.operators), _milliseconds(after.operators))[:SHOWN],
        ),
    ]
    return "\n".join(lines) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table, a line a row."""
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def _phases(summary: ProfileSummary) -> list[tuple[str, str, str]]:
    ordered = sorted(summary.phases.items(), key=lambda item: -item[1])
    return [(name, f"{seconds:.4f}", f"{seconds / summary.seconds:.1%}") for name, seconds in ordered]


def _operators(summary: ProfileSummary) -> list[tuple[str, ...]]:
    total: dict[str, float] = {}
    for one in summary.operators:
        total[one.where] = total.get(one.where, 0.0) + one.seconds
    return [
        (
            f"`{one.name}`",
            one.where,
            f"{one.calls:.4g}",
            f"{1e3 * one.seconds:.3f}",
            f"{one.seconds / total[one.where]:.1%}",
        )
        for one in summary.operators[:SHOWN]
    ]


def _milliseconds(operators: Iterable[Operator]) -> dict[str, float]:
    return {f"`{one.name}` on {one.where}": 1e3 * one.seconds for one in operators}


def _changes(before: Mapping[str, float], after: Mapping[str, float]) -> list[tuple[str, str, str, str]]:
    """Rows of what differs, by the size of the change; what is absent counts as 0."""
    changes = {name: after.get(name, 0.0) - before.get(name, 0.0) for name in before.keys() | after.keys()}
    names = sorted(changes, key=lambda name: (-abs(changes[name]), name))
    return [
        (name, f"{old:.4g}", f"{new:.4g}", f"{new - old:+.4g} ({_percent(old, new)})")
        for name in names
        for old, new in [(before.get(name, 0.0), after.get(name, 0.0))]
    ]


def _percent(old: float, new: float) -> str:
    return f"{new / old - 1:+.1%}" if old else "new"


def _said(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
