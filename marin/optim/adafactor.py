"""Adafactor (Shazeer and Stern 2018, arXiv:1804.04235) over parameters that are divided over ranks.

`torch.optim.Adafactor` gives these numbers in one process, but cannot take divided parameters: it squares a norm that
is still one part on each rank ("in-place operations that require placement changes are not supported").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate

from marin.optim.access import Access, RuleOptimizer, gradient_of
from marin.parallel.parts import local_of

DECAY_OF_BETA2 = -0.8
"""β₂ of step t is 1 − t to this power."""
LEAST_SCALE = 1e-3
"""A parameter's root mean square counts as at least this when the step is scaled by it."""
LARGEST_UPDATE = 1.0
"""Root mean square above which an update is scaled down."""


@dataclass
class _Member:
    """One parameter in a step: what is known of it so far."""

    parameter: Tensor
    state: dict[str, Tensor]
    weight: Tensor
    gradient: Tensor
    step: Tensor


class Adafactor(RuleOptimizer):
    """Second moments of a matrix from its row and column means only; a vector's in full.

    The step is relative: `lr` (at most 1/√t) times the root mean square of the parameter. A stack of matrices has one
    root mean square, and means of its own for each matrix. Two rounds of collectives a step, whatever the parameters.
    """

    def update(self, parameters: list[Tensor], group: dict[str, Any], access: Access) -> None:
        """One step; groups carry `lr` and `weight_decay`."""
        members = [self._member(parameter, access) for parameter in parameters]
        norms = _summed([(m.parameter, m.weight.square().sum(), None) for m in members])
        columns = _summed(
            [(m.parameter, m.gradient.square().sum(-2, keepdim=True), -2) for m in members if m.parameter.dim() > 1]
        )
        by_column = iter(columns)
        updates = [self._direction(m, next(by_column) if m.parameter.dim() > 1 else None, access) for m in members]
        lengths = _summed([(m.parameter, u.square().sum(), None) for m, u in zip(members, updates, strict=True)])
        for member, update, norm, length in zip(members, updates, norms, lengths, strict=True):
            count = member.parameter.numel()
            rate = member.step.rsqrt().clamp(max=group["lr"])
            rate = rate * (norm.double() / count).sqrt().clamp(min=LEAST_SCALE)
            rate = rate / ((length.double() / count).sqrt() / LARGEST_UPDATE).clamp(min=1.0)
            decayed = member.weight.mul(1 - group["lr"] * group["weight_decay"])
            access.write(member.weight, decayed - update * rate.to(update.dtype))

    def _member(self, parameter: Tensor, access: Access) -> _Member:
        state = self.state[parameter]
        weight = local_of(parameter)
        if not state:
            state["step"] = torch.zeros((), device=weight.device)
            if parameter.dim() > 1:
                state["row_var"] = self.zeros(_reduced(parameter, -1))
                state["col_var"] = self.zeros(_reduced(parameter, -2))
            else:
                state["variance"] = self.zeros(parameter)
        return _Member(parameter, state, weight, gradient_of(parameter), self.count(parameter, access))

    def _direction(self, member: _Member, columns: Tensor | None, access: Access) -> Tensor:
        """The gradient over the root of its second moments; `columns` are sums of squares down each column."""
        gradient, device = member.gradient, member.weight.device
        tiny = torch.finfo(gradient.dtype).eps
        share = (member.step**DECAY_OF_BETA2).to(gradient.dtype)
        if columns is None:
            stored = local_of(member.state["variance"])
            variance = access.read(stored, device).lerp(gradient.square(), share)
            access.write(stored, variance)
            return gradient * variance.clamp(min=tiny * tiny).rsqrt()
        stored_rows, stored_columns = (local_of(member.state[name]) for name in ("row_var", "col_var"))
        rows = access.read(stored_rows, device).lerp(gradient.square().mean(-1, keepdim=True), share)
        column = access.read(stored_columns, device).lerp(columns / member.parameter.shape[-2], share)
        access.write(stored_rows, rows)
        access.write(stored_columns, column)
        # The mean of the row means is that of the column means, which every rank has whole.
        variance = (rows @ column) / column.mean(-1, keepdim=True).clamp(min=tiny)
        return gradient * variance.clamp(min=tiny * tiny).rsqrt()


def _divided_dims(parameter: Tensor, axis: int | None) -> tuple[tuple[int, ...], DTensor | None]:
    """Mesh dimensions that divide a parameter, or only its `axis` (counted from the end)."""
    if not isinstance(parameter, DTensor):
        return (), None
    wanted = None if axis is None else parameter.dim() + axis
    dims = []
    for dim, placement in enumerate(parameter.placements):
        divided = getattr(placement, "dim", None)
        if divided is not None and divided == parameter.dim() - 1 and parameter.dim() > 1:
            raise ValueError(f"a parameter {tuple(parameter.shape)} has its columns divided; Adafactor takes rows only")
        if divided is not None and parameter.device_mesh.size(dim) > 1 and wanted in (None, divided):
            dims.append(dim)
    return tuple(dims), parameter


def _summed(parts: Sequence[tuple[Tensor, Tensor, int | None]]) -> list[Tensor]:
    """Each (parameter, part, axis)'s part summed over the ranks that divide the parameter (or its axis).

    One collective for each division that occurs and each of its mesh dimensions.
    """
    found: list[Tensor] = [part for _, part, _ in parts]
    together: dict[tuple[dist.ProcessGroup, ...], list[int]] = defaultdict(list)
    for place, (parameter, _, axis) in enumerate(parts):
        dims, divided = _divided_dims(parameter, axis)
        if divided is not None and dims:
            together[tuple(divided.device_mesh.get_group(dim) for dim in dims)].append(place)
    for groups, places in together.items():
        joined = torch.cat([found[place].reshape(-1) for place in places])
        for group in groups:
            dist.all_reduce(joined, group=group)
        pieces = torch.split(joined, [found[place].numel() for place in places])
        for place, piece in zip(places, pieces, strict=True):
            found[place] = piece.view(found[place].shape)
    return found


def _reduced(parameter: Tensor, axis: int) -> Tensor:
    """An empty tensor like `parameter` with `axis` (counted from the end) of size 1, divided as the rest of it is."""
    shape = list(parameter.shape)
    shape[axis] = 1
    if not isinstance(parameter, DTensor):
        return parameter.new_empty(shape)
    dims, _ = _divided_dims(parameter, axis)
    local_shape = list(parameter.to_local().shape)
    local_shape[axis] = 1
    placements = [Replicate() if dim in dims else p for dim, p in enumerate(parameter.placements)]
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(
        parameter.to_local().new_empty(local_shape),
        parameter.device_mesh,
        placements,
        run_check=False,
        shape=torch.Size(shape),
        stride=stride,
    )
