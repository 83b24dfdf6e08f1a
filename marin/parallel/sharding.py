"""Applies a plan to a model from outside: experts over ep, everything over FSDP2, recompute, mixed precision."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.utils.checkpoint import checkpoint

from marin.model.block import Block
from marin.model.packing import Packing
from marin.model.transformer import Transformer
from marin.parallel.config import Precision, Recompute
from marin.parallel.exchange import AllToAllDispatcher
from marin.parallel.meshes import Meshes

logger = logging.getLogger(__name__)


def compute_dtype(precision: Precision, device_type: str) -> torch.dtype | None:
    """The type to multiply matrices in, None for the type that the weights have."""
    if precision is Precision.FP32:
        return None
    if precision is Precision.BF16:
        return torch.bfloat16
    if device_type == "cuda" and torch.cuda.is_bf16_supported():
        return torch.bfloat16
    return None


def parallelise(
    model: Transformer,
    meshes: Meshes,
    *,
    precision: Precision = Precision.AUTO,
    recompute: Recompute = Recompute.NONE,
) -> Transformer:
    """Divide `model` (still on the meta device, or the same on every rank) over the meshes, in place.

    Gradients come out summed over all ranks, never averaged: divide the loss by the global number of tokens.
    """
    meshes.plan.check(model.config, meshes.plan.world_size)
    if meshes.plan.ep > 1:
        model.set_dispatcher(AllToAllDispatcher(meshes.expert_parallel.get_group()))
    apply_recompute(model, recompute)
    dtype = compute_dtype(precision, meshes.device_type)
    half = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=None if dtype is None else torch.float32)
    whole = MixedPrecisionPolicy(cast_forward_inputs=False)
    for block in _blocks(model):
        if meshes.plan.ep > 1:
            _divide_experts(block.moe.experts, meshes)
        fully_shard(block.moe.experts, mesh=meshes.expert_shard, mp_policy=half)
        if dtype is not None:
            # The router multiplies in fp32, so its weight must not be gathered in half precision.
            fully_shard(block.moe.router, mesh=meshes.dense_shard, mp_policy=whole)
        fully_shard(block, mesh=meshes.dense_shard, mp_policy=half)
    fully_shard(model, mesh=meshes.dense_shard, mp_policy=half)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            # Gloo knows no pre-multiplied sum, and the loss is already divided by the global count.
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    logger.info("parallel plan: %s; compute %s; recompute %s", meshes.plan, dtype or "as stored", recompute.value)
    return model


def apply_recompute(model: Transformer, recompute: Recompute) -> None:
    """Let every block keep only its input and make the rest again in the backward pass, counting no token twice."""
    if recompute is Recompute.NONE:
        return
    for block in _blocks(model):
        block.forward = _recomputed(block)  # type: ignore[method-assign]  # a wrapper module would rename weights


def _recomputed(block: Block) -> Any:
    plain = block.forward
    router = block.moe.router

    def contexts() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        return nullcontext(), router.recomputing()

    def forward(x_BTD: Tensor, packing: Packing) -> Tensor:
        if not torch.is_grad_enabled():
            return plain(x_BTD, packing)
        y: Tensor = checkpoint(plain, x_BTD, packing, use_reentrant=False, context_fn=contexts)
        return y

    return forward


def _divide_experts(experts: nn.Module, meshes: Meshes) -> None:
    for name, parameter in list(experts.named_parameters()):
        divided = distribute_tensor(parameter.detach(), meshes.expert_parallel, [Shard(0)])
        experts.register_parameter(name, nn.Parameter(divided))


def _blocks(model: Transformer) -> Iterator[Block]:
    for block in model.blocks:
        assert isinstance(block, Block)
        yield block


def local_of(tensor: Tensor) -> Tensor:
    """The part of a tensor that lies on this rank."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
