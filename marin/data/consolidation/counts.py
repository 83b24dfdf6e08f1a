"""Counters that shards bring back and that add up, whatever the order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

Count = tuple[str, str, str, int]
"""Figure, name within it, column, number: ``("language", "en", "kept", 17)``."""


class Tally:
    """Sums of counts."""

    def __init__(self, counts: Iterable[Count] = ()) -> None:
        self._sums: Counter[tuple[str, str, str]] = Counter()
        for figure, name, column, number in counts:
            self._sums[figure, name, column] += number

    def add(self, figure: str, name: str, column: str, number: int = 1) -> None:
        """Count one thing."""
        self._sums[figure, name, column] += number

    def add_all(self, figure: str, numbers: Mapping[tuple[str, str], int]) -> None:
        """Count many things of a figure, by name and column."""
        for (name, column), number in numbers.items():
            self._sums[figure, name, column] += number

    def counts(self) -> tuple[Count, ...]:
        """All sums, sorted."""
        return tuple((*key, number) for key, number in sorted(self._sums.items()) if number)

    def figure(self, figure: str) -> dict[str, dict[str, int]]:
        """The sums of a figure by name, then by column, both sorted."""
        found: dict[str, dict[str, int]] = {}
        for of, name, column, number in self.counts():
            if of == figure:
                found.setdefault(name, {})[column] = number
        return found
