"""MuonH: Nesterov momentum, orthogonalised matrix by matrix, then a step on the sphere of each matrix.

Whole matrices (undivided parameters, and stacks of experts divided by whole experts) are updated where they lie.
Matrices whose rows are divided are dealt out: within a shard group, that is once a replica, each is orthogonalised by
one rank (`marin.optim.dealing`), and its rows go there and come back (`marin.optim.matrix_exchange`). Momentum, weights
and norms stay divided. Replicas do the same work on the same numbers, so that they stay equal bit for bit and nothing
crosses the slower links between them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from marin.optim.access import Access, gradient_of
from marin.optim.dealing import ROUND_ELEMENTS, Matrix, Round, chunk, deal, split
from marin.optim.hyperball import TINY, on_sphere, orthogonalise
from marin.optim.matrix_exchange import MatrixExchange
from marin.parallel.parts import local_of


@dataclass(frozen=True)
class MuonH:
    """The rule over parameters of which some are divided; remembers its deals."""

    stacked: Mapping[Tensor, int]
    """How many matrices lie one below the other in a parameter (in each expert's slab of a stack of experts)."""
    round_elements: int = ROUND_ELEMENTS
    _deals: dict[tuple[int, ...], tuple[Round, ...]] = field(default_factory=dict)

    def update(
        self, parameters: Sequence[Tensor], momenta: Sequence[Tensor], group: Mapping[str, Any], access: Access
    ) -> None:
        """One step for all `parameters`, whose momenta are given beside them. A collective when rows are divided."""
        divided: dict[dist.ProcessGroup, list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for parameter, momentum in zip(parameters, momenta, strict=True):
            shard_group = rows_divided_over(parameter)
            if shard_group is None:
                self._update_whole(parameter, local_of(momentum), group, access)
            else:
                divided[shard_group].append((parameter, local_of(momentum)))
        for shard_group, members in divided.items():
            _DividedStep(shard_group, members, group, access).run(self._deal(shard_group, members))

    def _update_whole(self, parameter: Tensor, momentum: Tensor, group: Mapping[str, Any], access: Access) -> None:
        weight = local_of(parameter)
        if not weight.numel():
            return
        direction = _nesterov(momentum, gradient_of(parameter), group, access)
        stack = (-1, weight.shape[-2] // self.stacked[parameter], weight.shape[-1])
        orthogonal = orthogonalise(direction.reshape(stack), compute_dtype(weight))
        access.write(weight, on_sphere(weight.reshape(stack), orthogonal, group["lr"]).view(weight.shape))

    def _deal(self, group: dist.ProcessGroup, members: Sequence[tuple[Tensor, Tensor]]) -> tuple[Round, ...]:
        key = (id(group), *(id(parameter) for parameter, _ in members))
        if key not in self._deals:
            ranks = dist.get_world_size(group)
            matrices = []
            for number, (parameter, _) in enumerate(members):
                slabs = local_of(parameter).shape[0] if parameter.dim() == 3 else 1
                rows, columns = parameter.shape[-2:]
                matrices += split(number, slabs, rows, columns, self.stacked[parameter], ranks)
            self._deals[key] = deal(matrices, ranks, self.round_elements)
        return self._deals[key]


@dataclass(frozen=True)
class _DividedStep:
    """One step of the parameters whose rows are divided over one group."""

    group: dist.ProcessGroup
    members: Sequence[tuple[Tensor, Tensor]]
    """(parameter, this rank's part of its momentum)"""
    settings: Mapping[str, Any]
    access: Access

    def run(self, rounds: Sequence[Round]) -> None:
        weight = local_of(self.members[0][0])
        MatrixExchange(self.group, compute_dtype(weight), weight.device).run(rounds, self._direction, self._apply)

    def _direction(self, matrix: Matrix) -> Tensor:
        parameter, momentum = self.members[matrix.parameter]
        own = self._own_rows(matrix, momentum)
        return _nesterov(own, self._own_rows(matrix, gradient_of(parameter)), self.settings, self.access)

    def _apply(self, turn: Round, orthogonal: dict[Matrix, Tensor]) -> None:
        """The step of `on_sphere`, with the norms of whole matrices summed over the group."""
        weights = {m: self._own_rows(m, local_of(self.members[m.parameter][0])) for m in orthogonal}
        any_weight = local_of(self.members[0][0])
        nothing = any_weight.new_zeros((), dtype=torch.float64)
        before, length = self._norms(
            [[_square(parts[m]) if m in parts else nothing for m in turn.matrices] for parts in (weights, orthogonal)]
        )
        moved: dict[Matrix, Tensor] = {}
        for place, matrix in enumerate(turn.matrices):
            if matrix in weights:
                scale = (self.settings["lr"] * before[place] / length[place]).to(any_weight.dtype)
                moved[matrix] = weights[matrix] - orthogonal[matrix].to(any_weight.dtype) * scale
        (after,) = self._norms([[_square(moved[m]) if m in moved else nothing for m in turn.matrices]])
        for place, matrix in enumerate(turn.matrices):
            if matrix in moved:
                back = (before[place] / after[place]).to(any_weight.dtype)
                self.access.write(weights[matrix], moved[matrix] * back)

    def _norms(self, squares: list[list[Tensor]]) -> Tensor:
        sums = torch.stack([torch.stack(row) for row in squares])
        dist.all_reduce(sums, group=self.group)
        norms: Tensor = sums.sqrt().clamp(min=TINY)
        return norms

    def _own_rows(self, matrix: Matrix, local: Tensor) -> Tensor:
        """This rank's rows of a matrix, a view into its part of the parameter or of a tensor that is divided alike."""
        rank, ranks = dist.get_rank(self.group), dist.get_world_size(self.group)
        slab = local[matrix.slab] if local.dim() == 3 else local
        first, _ = chunk(self.members[matrix.parameter][0].shape[-2], rank, ranks)
        start, stop = matrix.held[rank]
        return slab[start - first : stop - first]


def rows_divided_over(parameter: Tensor) -> dist.ProcessGroup | None:
    """The group over which the rows of a parameter's matrices are divided, None when whole matrices lie on this rank.

    Raises ValueError for a division that MuonH cannot take: of columns, or of rows over two mesh dimensions.
    """
    if not isinstance(parameter, DTensor):
        return None
    mesh = parameter.device_mesh
    rows = []
    for dim, placement in enumerate(parameter.placements):
        divided = getattr(placement, "dim", None)
        if divided is None or mesh.size(dim) == 1:
            continue
        if divided == parameter.dim() - 1:
            raise ValueError(f"a parameter {tuple(parameter.shape)} has its columns divided; MuonH divides by rows")
        if divided == parameter.dim() - 2:
            rows.append(dim)
    if len(rows) > 1:
        raise ValueError(
            f"a parameter {tuple(parameter.shape)} has its rows divided over two dimensions of the mesh "
            f"{mesh.mesh_dim_names}; MuonH takes one"
        )
    return mesh.get_group(rows[0]) if rows else None


def compute_dtype(weight: Tensor) -> torch.dtype:
    """The type to orthogonalise in: bf16 on CUDA cards that have it, that of the weights elsewhere."""
    fast = weight.device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if fast and weight.dtype == torch.float32 else weight.dtype


def _nesterov(stored: Tensor, gradient: Tensor, group: Mapping[str, Any], access: Access) -> Tensor:
    momentum = access.read(stored, gradient.device).mul(group["momentum"]).add_(gradient)
    access.write(stored, momentum)
    return gradient.add(momentum, alpha=group["momentum"])


def _square(part: Tensor) -> Tensor:
    # Sums of fp32 squares drift by 1e-6 in a hundred steps.
    square: Tensor = torch.linalg.vector_norm(part, dtype=torch.float64).square()
    return square
