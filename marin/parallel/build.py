"""Builds a model for one process or for the ranks of a plan, with equal initial weights either way."""

from __future__ import annotations

import torch
from torch.distributed.tensor import DTensor

from marin.model.config import ComputeConfig, ModelConfig
from marin.model.initialisation import initialise, is_stack
from marin.model.transformer import Transformer
from marin.parallel.config import Precision, Recompute
from marin.parallel.meshes import Meshes
from marin.parallel.sharding import apply_recompute, parallelise


def build_model(
    config: ModelConfig,
    *,
    meshes: Meshes | None = None,
    seed: int,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
    precision: Precision = Precision.AUTO,
    recompute: Recompute = Recompute.NONE,
    compute: ComputeConfig = ComputeConfig(),
) -> Transformer:
    """A model in training mode with the initial weights of `seed`; without meshes, whole in this process.

    Built on the meta device and divided before memory is taken, so that no rank ever holds the whole model.
    """
    with torch.device("meta"):
        model = Transformer(config, compute=compute).to(dtype)
    if meshes is None:
        apply_recompute(model, recompute)
    else:
        parallelise(model, meshes, precision=precision, recompute=recompute)
    model.to_empty(device=device)
    reset_parameters(model, seed, meshes)
    return model


def reset_parameters(model: Transformer, seed: int, meshes: Meshes | None = None) -> None:
    """Initial weights of `seed`, equal to those of the undivided model, and routing state as before the first step."""
    for name, parameter in model.named_parameters():
        if isinstance(parameter, DTensor):
            if meshes is None:
                raise ValueError(f"{name} is divided over ranks; give the meshes that it is divided over")
            _initialise_divided(parameter, name, model.config.width, seed, meshes)
        else:
            initialise(parameter, name, model.config.width, seed)
    model.reset_routing()


@torch.no_grad()
def _initialise_divided(parameter: DTensor, name: str, width: int, seed: int, meshes: Meshes) -> None:
    local = parameter.to_local()
    if not local.numel():
        return
    if is_stack(name):
        # Only the experts that lie here are drawn: the whole stack would not fit.
        group = parameter.shape[0] // meshes.plan.ep
        share = -(-group // meshes.plan.efsdp)
        first = meshes.sparse.get_local_rank("ep") * group + meshes.sparse.get_local_rank("efsdp") * share
        initialise(local, name, width, seed, first=first)
        return
    first = meshes.dense.get_local_rank("dp_shard") * -(-parameter.shape[0] // meshes.plan.dp_shard)
    whole = torch.empty(parameter.shape, dtype=parameter.dtype, device=local.device)
    initialise(whole, name, width, seed)
    local.copy_(whole[first : first + local.shape[0]])
