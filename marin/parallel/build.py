"""Builds a model for one process or for the ranks of a plan, with equal initial weights either way."""

from __future__ import annotations

import torch
from torch.distributed.tensor import DTensor

from marin.model.config import ComputeConfig, ModelConfig
from marin.model.initialisation import initialise, is_stack
from marin.model.transformer import Transformer
from marin.parallel.compilation import compile_blocks
from marin.parallel.config import OverlapConfig, Precision, Recompute
from marin.parallel.meshes import Meshes
from marin.parallel.parts import own_rows
from marin.parallel.recompute import apply_recompute
from marin.parallel.sharding import parallelise


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
    overlap: OverlapConfig = OverlapConfig(),
) -> Transformer:
    """A model in training mode with the initial weights of `seed`; without meshes, whole in this process.

    Built on the meta device and divided before memory is taken, so that no rank ever holds the whole model.
    """
    with torch.device("meta"):
        model = Transformer(config, compute=compute).to(dtype)
    if meshes is None:
        apply_recompute(model, recompute)
    else:
        parallelise(model, meshes, precision=precision, recompute=recompute, overlap=overlap, dispatch=compute.dispatch)
    if compute.compile:
        compile_blocks(model, torch.device(device).type)
    model.to_empty(device=device)
    reset_parameters(model, seed)
    return model


def reset_parameters(model: Transformer, seed: int) -> None:
    """Initial weights of `seed`, equal to those of the undivided model, and routing state as before the first step."""
    for name, parameter in model.named_parameters():
        if isinstance(parameter, DTensor):
            _initialise_divided(parameter, name, model.config.width, seed)
        else:
            initialise(parameter, name, model.config.width, seed)
    model.reset_routing()


@torch.no_grad()
def _initialise_divided(parameter: DTensor, name: str, width: int, seed: int) -> None:
    local, own = parameter.to_local(), own_rows(parameter)
    if not local.numel():
        return
    if is_stack(name):
        # Only the experts that lie here are drawn: the whole stack would not fit.
        initialise(local, name, width, seed, first=own.start)
        return
    whole = torch.empty(parameter.shape, dtype=parameter.dtype, device=local.device)
    initialise(whole, name, width, seed)
    local.copy_(whole[own])
