"""Moves rows of divided matrices to the ranks that orthogonalise them, and the results back.

Two collectives a round, each one uneven all-to-all: of an n-rank group every rank keeps what it owns, so a matrix of N
elements costs (n − 1)/n · N elements to its owner and as many back, in the type of the computation. Gathering
direction and weight on every rank would cost 2(n − 1) · N, and n times the arithmetic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from marin.optim.dealing import Matrix, Round
from marin.optim.hyperball import orthogonalise


@dataclass
class _Transfer:
    """A collective under way, and the buffers that must outlive it."""

    received: Tensor
    sent: Tensor
    work: dist.Work | None

    def wait(self) -> Tensor:
        """What arrived; on CUDA only the stream waits."""
        if self.work is not None:
            self.work.wait()
        return self.received


@dataclass(frozen=True)
class MatrixExchange:
    """Exchanges over one process group, in `dtype` on `device`."""

    group: dist.ProcessGroup
    dtype: torch.dtype
    device: torch.device

    def run(
        self,
        rounds: Sequence[Round],
        direction: Callable[[Matrix], Tensor],
        apply: Callable[[Round, dict[Matrix, Tensor]], None],
    ) -> None:
        """Orthogonalise the directions of all rounds and hand each round's results to `apply`.

        `direction` gives this rank's rows of a matrix and is called once for each that it holds rows of; `apply` gets
        the rows of the orthogonal matrices in the same division. A collective. Rows of the next round travel while one
        is computed, and results of the last one while the next is.
        """
        ahead = self._to_owners(rounds[0], direction) if rounds else None
        back: tuple[Round, _Transfer] | None = None
        for number, turn in enumerate(rounds):
            assert ahead is not None
            arriving = ahead
            ahead = self._to_owners(rounds[number + 1], direction) if number + 1 < len(rounds) else None
            orthogonal = self._orthogonalise(turn, arriving.wait())
            if back is not None:
                apply(back[0], self._rows(*back))
            back = turn, self._from_owners(turn, orthogonal)
        if back is not None:
            apply(back[0], self._rows(*back))

    @property
    def _rank(self) -> int:
        return dist.get_rank(self.group)

    def _to_owners(self, turn: Round, direction: Callable[[Matrix], Tensor]) -> _Transfer:
        rank = self._rank
        rows = [direction(m).reshape(-1).to(self.dtype) for m in turn.matrices if m.elements(rank)]
        sends = [sum(m.elements(rank) for m in owned) for owned in turn.owned]
        return self._exchange(rows, sends, self._owned_sizes(turn))

    def _from_owners(self, turn: Round, orthogonal: Sequence[Tensor]) -> _Transfer:
        rank = self._rank
        rows = []
        for peer in range(len(turn.owned)):
            for matrix, whole in zip(turn.owned[rank], orthogonal, strict=True):
                start, stop = (row - matrix.first_row for row in matrix.held[peer])
                rows.append(whole[start:stop].reshape(-1))
        receives = [sum(m.elements(rank) for m in owned) for owned in turn.owned]
        return self._exchange(rows, self._owned_sizes(turn), receives)

    def _owned_sizes(self, turn: Round) -> list[int]:
        """Elements of the matrices that this rank owns, by the rank that holds them."""
        return [sum(m.elements(peer) for m in turn.owned[self._rank]) for peer in range(len(turn.owned))]

    def _exchange(self, rows: list[Tensor], sends: list[int], receives: list[int]) -> _Transfer:
        sent = torch.cat(rows) if rows else torch.empty(0, dtype=self.dtype, device=self.device)
        received = torch.empty(sum(receives), dtype=self.dtype, device=self.device)
        work = dist.all_to_all_single(received, sent, receives, sends, group=self.group, async_op=True)
        return _Transfer(received, sent, work)

    def _orthogonalise(self, turn: Round, arrived: Tensor) -> list[Tensor]:
        """The orthogonal forms of this rank's matrices, in their order; equal shapes are computed as one stack."""
        mine = turn.owned[self._rank]
        pieces: dict[Matrix, list[Tensor]] = {matrix: [] for matrix in mine}
        peers = range(len(turn.owned))
        sizes = [matrix.elements(peer) for peer in peers for matrix in mine]
        for (_, matrix), piece in zip(
            ((peer, matrix) for peer in peers for matrix in mine),
            torch.split(arrived, sizes) if sizes else (),
            strict=True,
        ):
            pieces[matrix].append(piece)
        by_shape: dict[tuple[int, int], list[Matrix]] = defaultdict(list)
        for matrix in mine:
            by_shape[matrix.shape].append(matrix)
        done: dict[Matrix, Tensor] = {}
        for same in by_shape.values():
            whole = [torch.cat(pieces.pop(m)).view(m.rows, m.columns) for m in same]
            wide = torch.stack([x if m.rows <= m.columns else x.mT for m, x in zip(same, whole, strict=True)])
            for matrix, found in zip(same, orthogonalise(wide, self.dtype), strict=True):
                done[matrix] = found if matrix.rows <= matrix.columns else found.mT
        return [done[matrix] for matrix in mine]

    def _rows(self, turn: Round, transfer: _Transfer) -> dict[Matrix, Tensor]:
        """This rank's rows of every orthogonal matrix of a round, [rows held, columns]."""
        held = [matrix for matrix in turn.matrices if matrix.elements(self._rank)]
        sizes = [matrix.elements(self._rank) for matrix in held]
        arrived = torch.split(transfer.wait(), sizes) if held else ()
        return {matrix: rows.view(-1, matrix.columns) for matrix, rows in zip(held, arrived, strict=True)}
