"""MuonH and Adafactor on matrices divided in ways that a model on a few ranks does not show, beside whole ones."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from marin.optim.access import RuleOptimizer
from marin.optim.adafactor import Adafactor
from marin.optim.three_groups import ThreeGroups


@dataclass(frozen=True)
class Form:
    """A parameter: its shape, how many matrices lie one below the other in it, and which dimension is divided."""

    shape: tuple[int, ...]
    stacked: int = 1
    dim: int = 0


FORMS = (
    Form((7, 5)),
    Form((1, 6)),
    Form((10, 3), stacked=5),
    Form((12, 4), stacked=2),
    Form((4, 12)),
    Form((5, 6, 4), stacked=2),
    Form((3, 8, 5), dim=1),
    Form((1, 6, 4), stacked=2, dim=1),
    Form((2, 3, 4), dim=1),
)


@dataclass(frozen=True)
class DividedMatrices:
    """Largest relative differences from whole matrices, and how far norms have wandered."""

    weight: float
    """After three float64 steps of MuonH; largest over all parameters and sizes of a round."""
    momentum: float
    adafactor: float
    """Of the weights after three float64 steps of Adafactor."""
    drift: float
    """Largest relative change of any matrix's norm after a hundred fp32 steps."""
    refused: str
    """What is said of divided columns."""


def divided_matrices() -> DividedMatrices:
    """All of it on this process group."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("shard",))
    weight = momentum = 0.0
    for round_elements in (1, 60, 2**20):
        whole, parts = _steps(None, 3, torch.float64), _steps(mesh, 3, torch.float64, round_elements)
        for (a, m), (b, n) in zip(whole, parts, strict=True):
            weight = max(weight, float((a - b).norm() / a.norm()))
            momentum = max(momentum, float((m - n).norm() / m.norm()))
    whole, parts = (_steps(where, 3, torch.float64, rule="adafactor") for where in (None, mesh))
    adafactor = max(float((a - b).norm() / a.norm()) for (a, _), (b, _) in zip(whole, parts, strict=True))
    before, after = _steps(mesh, 0, torch.float32), _steps(mesh, 100, torch.float32)
    drift = 0.0
    for (a, _), (b, _), form in zip(before, after, FORMS, strict=True):
        heights = (-1, form.shape[-2] // form.stacked, form.shape[-1])
        norms = [tensor.double().view(heights).norm(dim=(1, 2)) for tensor in (a, b)]
        drift = max(drift, float((norms[1] / norms[0] - 1).abs().max()))
    return DividedMatrices(weight, momentum, adafactor, drift, _refusal(mesh))


def _steps(
    mesh: DeviceMesh | None, count: int, dtype: torch.dtype, round_elements: int = 2**20, rule: str = "muonh"
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Whole weights and momenta after some steps on random gradients; without a mesh nothing is divided."""
    generator = torch.Generator().manual_seed(5)

    def made(form: Form) -> torch.Tensor:
        tensor = torch.randn(form.shape, dtype=torch.float64, generator=generator).to(dtype)
        return tensor if mesh is None else distribute_tensor(tensor, mesh, [Shard(form.dim)])

    parameters = [nn.Parameter(made(form)) for form in FORMS]
    group = {"params": parameters, "rule": "muonh", "momentum": 0.9, "lr": 0.02}
    stacked = {parameter: form.stacked for parameter, form in zip(parameters, FORMS, strict=True)}
    optimizer: RuleOptimizer = ThreeGroups([group], stacked, round_elements=round_elements)
    if rule == "adafactor":
        optimizer = Adafactor([{"params": parameters, "lr": 0.02}])
    for _ in range(count):
        for parameter, form in zip(parameters, FORMS, strict=True):
            parameter.grad = made(form)
        optimizer.step()
    state = "row_var" if rule == "adafactor" else "momentum"
    momenta = [optimizer.state[p][state] if count else p.detach() for p in parameters]
    return [(_whole(p.detach()), _whole(m)) for p, m in zip(parameters, momenta, strict=True)]


def _refusal(mesh: DeviceMesh) -> str:
    parameter = nn.Parameter(distribute_tensor(torch.randn(4, 4), mesh, [Shard(1)]))
    parameter.grad = parameter.detach().clone()
    group = {"params": [parameter], "rule": "muonh", "momentum": 0.9, "lr": 0.02}
    try:
        ThreeGroups([group], {parameter: 1}).step()
    except ValueError as error:
        return str(error)
    return ""


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
