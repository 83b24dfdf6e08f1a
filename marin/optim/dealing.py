"""Which rank orthogonalises which matrix, when matrices are divided by rows over the ranks of a shard group.

Pure arithmetic: every rank computes the same deal from the shapes alone. Imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

ROUND_ELEMENTS = 2**26
"""Elements that an owner orthogonalises at once, which bounds a round's memory; a larger matrix goes alone."""


@dataclass(frozen=True)
class Matrix:
    """One matrix of a parameter, and who holds its rows."""

    parameter: int
    """Number of its parameter among those that are dealt together."""
    slab: int
    """Number of the 2-D slab of that parameter in which it lies: the expert of a stack, 0 in a 2-D parameter."""
    first_row: int
    """Its first row in the slab; several matrices may lie one below the other."""
    rows: int
    columns: int
    held: tuple[tuple[int, int], ...]
    """For every rank of the group the rows [start, stop) of the slab that it holds of this matrix; may be empty."""

    @property
    def cost(self) -> int:
        """Proportional to the operations of one Newton–Schulz step."""
        return self.rows * self.columns * min(self.rows, self.columns)

    @property
    def shape(self) -> tuple[int, int]:
        """(shorter, longer) side: matrices of one shape are orthogonalised as a stack, whichever way they lie."""
        return min(self.rows, self.columns), max(self.rows, self.columns)

    def elements(self, rank: int) -> int:
        """Elements of it that `rank` holds."""
        start, stop = self.held[rank]
        return (stop - start) * self.columns


@dataclass(frozen=True)
class Round:
    """What is exchanged and orthogonalised at once."""

    owned: tuple[tuple[Matrix, ...], ...]
    """By rank of the group, the matrices that it orthogonalises."""

    @cached_property
    def matrices(self) -> tuple[Matrix, ...]:
        """All of them, by owner."""
        return tuple(matrix for owned in self.owned for matrix in owned)

    def moved_elements(self) -> int:
        """Elements that all ranks together send to another rank, one way; the result goes back the same way."""
        return sum(
            matrix.elements(rank)
            for owner, owned in enumerate(self.owned)
            for matrix in owned
            for rank in range(len(self.owned))
            if rank != owner
        )


def chunk(rows: int, rank: int, ranks: int) -> tuple[int, int]:
    """Rows [start, stop) of `rank` when `rows` are divided as FSDP divides them: equal runs, the last ones shorter."""
    size = -(-rows // ranks)
    return min(rank * size, rows), min((rank + 1) * size, rows)


def split(parameter: int, slabs: int, rows: int, columns: int, stacked: int, ranks: int) -> list[Matrix]:
    """The matrices of a parameter of `slabs` slabs [rows, columns], `stacked` in each, divided by rows over `ranks`."""
    if rows % stacked:
        raise ValueError(f"stacked is {stacked}, which does not divide the {rows} rows of a slab")
    height = rows // stacked
    chunks = [chunk(rows, rank, ranks) for rank in range(ranks)]
    found = []
    for slab in range(slabs):
        for first in range(0, rows, height):
            held = tuple((min(max(a, first), first + height), min(max(b, first), first + height)) for a, b in chunks)
            found.append(Matrix(parameter, slab, first, height, columns, held))
    return found


def deal(matrices: Iterable[Matrix], ranks: int, round_elements: int = ROUND_ELEMENTS) -> tuple[Round, ...]:
    """Every matrix gets one owner: the costliest first, each to the rank that has least to do so far.

    An owner's matrices are cut into rounds of at most `round_elements`, equal shapes together; all ranks take part in
    as many rounds as the busiest one needs.
    """
    if round_elements < 1:
        raise ValueError(f"round_elements is {round_elements}; give at least 1")
    owned: list[list[Matrix]] = [[] for _ in range(ranks)]
    load = [0] * ranks
    for matrix in sorted(matrices, key=lambda m: -m.cost):
        owner = min(range(ranks), key=load.__getitem__)
        owned[owner].append(matrix)
        load[owner] += matrix.cost
    parts = [_cut(sorted(mine, key=lambda m: m.shape), round_elements) for mine in owned]
    count = max(map(len, parts), default=0)
    return tuple(Round(tuple(part[i] if i < len(part) else () for part in parts)) for i in range(count))


def _cut(matrices: Sequence[Matrix], limit: int) -> list[tuple[Matrix, ...]]:
    parts: list[list[Matrix]] = []
    size = 0
    for matrix in matrices:
        elements = matrix.rows * matrix.columns
        if not parts or size + elements > limit:
            parts.append([])
            size = 0
        parts[-1].append(matrix)
        size += elements
    return [tuple(part) for part in parts]
