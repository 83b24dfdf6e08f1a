"""Applies a plan to a model from outside: experts over ep, everything over FSDP2, recompute, mixed precision.

Every block is one unit of FSDP with up to three groups of parameters, each gathered and reduced in one collective: its
experts on their mesh; what enters the forward pass in fp32, when matrices are multiplied in half precision; the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard, distribute_tensor

from marin.model.block import Block
from marin.model.config import ALL_TO_ALL
from marin.model.initialisation import is_stack
from marin.model.parameters import is_wide
from marin.model.router import Router
from marin.model.transformer import Transformer
from marin.parallel.compat import add_parameter_group
from marin.parallel.config import OverlapConfig, ParallelPlan, Precision, Recompute
from marin.parallel.exchange import dispatchers
from marin.parallel.meshes import Meshes
from marin.parallel.overlap import prefetch_blocks, shared_beside_exchange
from marin.parallel.recompute import apply_recompute
from marin.parallel.reduction import MeshReducer

logger = logging.getLogger(__name__)

HALF = {Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}


def compute_dtype(precision: Precision, device_type: str) -> torch.dtype | None:
    """The type to multiply matrices in, None for the type that the weights have."""
    if precision in HALF:
        return HALF[precision]
    if precision is Precision.AUTO and device_type == "cuda" and torch.cuda.is_bf16_supported():
        return torch.bfloat16
    return None


def parallelise(
    model: Transformer,
    meshes: Meshes,
    *,
    precision: Precision = Precision.AUTO,
    recompute: Recompute = Recompute.NONE,
    overlap: OverlapConfig = OverlapConfig(),
    dispatch: str = ALL_TO_ALL,
) -> Transformer:
    """Divide `model` (still on the meta device, or the same on every rank) over the meshes, in place.

    `dispatch` names how tokens travel to experts on other ranks (`marin.parallel.exchange.dispatcher_factory`).
    Gradients come out summed over all ranks, never averaged: divide the loss by the global number of tokens.
    """
    meshes.plan.check(model.config, meshes.plan.world_size)
    if meshes.plan.ep > 1:
        capacity = model.config.balancing.capacity
        model.set_dispatcher(*dispatchers(dispatch, meshes.expert_parallel.get_group(), capacity))
    model.set_reducer(MeshReducer(meshes))
    apply_recompute(model, recompute, exchanges=meshes.plan.ep > 1)
    dtype = compute_dtype(precision, meshes.device_type)
    blocks = list(_blocks(model))
    for block in blocks:
        if meshes.plan.ep > 1:
            _divide_experts(block.moe.experts, meshes)
        _shard_unit(block, meshes, dtype, experts=list(block.moe.experts.parameters()))
    _shard_unit(model, meshes, dtype)
    for module in _units(model):
        # Gloo knows no pre-multiplied sum, and the loss is already divided by the global count.
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)
    if meshes.device_type == "cuda":
        prefetch_blocks(blocks, overlap.prefetch_blocks)
        if overlap.shared_experts and meshes.plan.ep > 1:
            shared_beside_exchange(blocks)
    logger.info("parallel plan: %s; compute %s; recompute %s", meshes.plan, dtype or "as stored", recompute.value)
    return model


def _shard_unit(
    unit: nn.Module, meshes: Meshes, dtype: torch.dtype | None, experts: Sequence[nn.Parameter] = ()
) -> None:
    """Make a unit of FSDP of what no unit inside of it has."""
    half = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=None if dtype is None else torch.float32)
    inner = {p for module in unit.modules() if isinstance(module, FSDPModule) for p in module.parameters()}
    own = [(name, p) for name, p in unit.named_parameters() if p not in inner and p not in set(experts)]
    wide = [p for name, p in own if dtype is not None and is_wide(name)]
    fully_shard(unit, mesh=meshes.dense_shard, mp_policy=half, ignored_params={*experts, *wide})
    assert isinstance(unit, FSDPModule)
    if wide:
        add_parameter_group(unit, wide, meshes.dense_shard, MixedPrecisionPolicy())
    if experts:
        add_parameter_group(unit, experts, meshes.expert_shard, half)


def whole_gradient_bytes(model: Transformer, plan: ParallelPlan) -> int:
    """Bytes that the gradients of all units take on a rank while they are not divided: at least fp32."""
    elements = {True: 0, False: 0}
    size = 4
    for name, parameter in model.named_parameters():
        elements[is_stack(name)] += parameter.numel()
        size = max(size, parameter.element_size())
    return (elements[False] + elements[True] // plan.ep) * size


def set_last_micro_batch(model: nn.Module, last: bool, *, every: bool = False) -> None:
    """Say before a micro-batch whether it is a step's last. Only then gradients are summed over the ranks, unless
    `every` time is wanted; until then a rank holds the gradients of whole units. And only then the routers' counts are
    complete, so that they can be pooled.
    """
    for module in _units(model):
        module.set_requires_gradient_sync(last or every, recurse=False)
        module.set_is_last_backward(last)
    for router in (module for module in model.modules() if isinstance(module, Router)):
        router.is_last_micro_batch = last


def _divide_experts(experts: nn.Module, meshes: Meshes) -> None:
    for name, parameter in list(experts.named_parameters()):
        divided = distribute_tensor(parameter.detach(), meshes.expert_parallel, [Shard(0)])
        experts.register_parameter(name, nn.Parameter(divided))


def _units(model: nn.Module) -> Iterator[FSDPModule]:
    return (module for module in model.modules() if isinstance(module, FSDPModule))


def _blocks(model: Transformer) -> Iterator[Block]:
    for block in model.blocks:
        assert isinstance(block, Block)
        yield block
