"""The answer of one check: how it went, in words, and the way out."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass


class Level(enum.IntEnum):
    """ok: nothing to do. warn: a run may work, read it. fail: a run will not work."""

    ok = 0
    warn = 1
    fail = 2


@dataclass(frozen=True)
class Finding:
    """One line of the doctor. `way_out` says what to do, and is empty only where all is well."""

    subject: str
    level: Level
    detail: str
    way_out: str = ""

    def __post_init__(self) -> None:
        if self.level is not Level.ok and not self.way_out:
            raise ValueError(f"finding.way_out of {self.subject!r} must say what to do, since its level is not ok")

    def __str__(self) -> str:
        line = f"{self.level.name:<5}{self.subject}: {self.detail}"
        return f"{line}; {self.way_out}" if self.way_out else line


def worst(findings: Iterable[Finding]) -> Level:
    """The gravest level among the findings, ok when there are none."""
    return max((finding.level for finding in findings), default=Level.ok)


def render(findings: Iterable[Finding]) -> str:
    """One finding a line."""
    return "\n".join(map(str, findings))
