"""What the ranks of test_steps do: the same step under every recompute policy and way of summing, watched."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from marin.checkpoint.tensors import create_optimizer_state
from marin.model.normalisation import Norm
from marin.model.router import Router
from marin.model.transformer import Transformer
from marin.optim.build import build_optimizer
from marin.optim.config import OptimizerConfig, OptimizerKind
from marin.parallel.build import build_model
from marin.parallel.config import ParallelPlan, Precision, Recompute
from marin.parallel.live import LiveBytes
from marin.parallel.meshes import Meshes, build_meshes
from marin.parallel.overlap import prefetch_blocks
from marin.parallel.parts import local_of, own_rows
from marin.parallel.sharding import set_last_micro_batch
from marin.parallel.traffic import CountedTraffic, Traffic
from tests.model.small import SMALL, packed

CONFIG = replace(SMALL, experts=8, layers=2, sequence_length=12)
EP2 = ParallelPlan(dp_shard=2, ep=2)
PLANS = {2: (EP2,), 4: (ParallelPlan(dp_shard=4, ep=2), ParallelPlan(dp_replicate=2, dp_shard=2, ep=2))}
"""By the number of ranks."""
SEQUENCES, MICRO_BATCHES = 8, 2
"""Of the global batch, and of each rank."""

UNEVEN = replace(
    SMALL, vocab_size=331, width=48, heads=4, head_dim=12, layers=3, experts=6, latent_width=24, expert_width=20
)
"""Rows that do not divide by four."""


@dataclass(frozen=True)
class Way:
    """How one step is computed."""

    recompute: Recompute = Recompute.NONE
    every: bool = False
    """Gradients are summed after each micro-batch."""
    ahead: int = 0
    """Blocks that are gathered ahead, as on CUDA."""


PLAIN, SELECTIVE, FULL, EVERY = Way(), Way(Recompute.SELECTIVE), Way(Recompute.FULL, ahead=1), Way(every=True)
KINDS = (OptimizerKind.MUONH, OptimizerKind.ADAFACTOR)
"""Optimizers whose state is not all of one shape; those of the others are proven by the same rule."""


@dataclass(frozen=True)
class Step:
    """One step as one rank saw it."""

    loss: float
    """Relative difference to one process."""
    gradient: float
    loads_equal: bool
    calls: dict[str, int]
    traffic: Traffic
    kept: int
    """Bytes alive after the first forward pass."""
    leaving: int
    """Assignments of this rank's tokens whose expert is on another rank."""


@dataclass(frozen=True)
class Held:
    """Bytes that lie on one rank."""

    weights: int
    gradients: int
    optimizer: int
    rows_equal: bool
    """`own_rows` of every parameter are the rows that lie here."""


@dataclass(frozen=True)
class Half:
    """Types that the parts of a bf16 step saw."""

    gains: frozenset[torch.dtype]
    routers: frozenset[torch.dtype]
    matrices: frozenset[torch.dtype]
    outputs: frozenset[torch.dtype]
    loss: torch.dtype
    gradients: frozenset[torch.dtype]
    gathers: int
    difference: float
    """Of the loss, relative to fp32."""


@dataclass(frozen=True)
class Seen:
    """Everything of one rank."""

    steps: dict[tuple[ParallelPlan, Way], Step]
    held: dict[OptimizerKind, Held]
    half: dict[Precision, Half]


def on_two() -> Seen:
    """All that two ranks are asked, in one start of processes."""
    return Seen(
        steps={(EP2, way): _step(EP2, way) for way in (PLAIN, SELECTIVE, FULL, EVERY)},
        held={},
        half={precision: _half(precision) for precision in (Precision.BF16, Precision.FP16)},
    )


def on_four() -> Seen:
    """All that four ranks are asked."""
    return Seen(
        steps={(plan, way): _step(plan, way) for plan in PLANS[4] for way in (PLAIN, SELECTIVE, FULL, EVERY)},
        held={kind: _held(kind) for kind in KINDS},
        half={},
    )


def _parts(meshes: Meshes, batch: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """This rank's micro-batches."""
    share = SEQUENCES // meshes.plan.data_ranks
    mine = {name: tensor[dist.get_rank() * share :][:share] for name, tensor in batch.items()}
    size = share // MICRO_BATCHES
    return [{n: t[i * size :][:size] for n, t in mine.items()} for i in range(MICRO_BATCHES)]


def _step(plan: ParallelPlan, way: Way) -> Step:
    meshes = build_meshes(plan)
    model = build_model(CONFIG, meshes=meshes, seed=3, dtype=torch.float64, recompute=way.recompute)
    if way.ahead:
        prefetch_blocks(list(model.blocks), way.ahead)
    alone = build_model(CONFIG, seed=3, dtype=torch.float64)
    batch = packed(batch=SEQUENCES, length=12)
    tokens = int(batch["loss_mask_BT"].sum())
    chosen: list[Tensor] = []
    for router in model.routers():
        router.register_forward_hook(lambda router, _, routing: _note(router, routing.experts_NK, chosen))
    loss = torch.zeros((), dtype=torch.float64)
    kept = 0
    with CountedTraffic() as counted:
        for number, part in enumerate(_parts(meshes, batch), 1):
            set_last_micro_batch(model, number == MICRO_BATCHES, every=way.every)
            with LiveBytes() as live:
                total = model(**part).total_sum / tokens
            kept = kept or live.now
            torch.autograd.backward(total)
            loss += total.detach()
    dist.all_reduce(loss)
    whole = alone(**batch).total_sum / tokens
    torch.autograd.backward(whole)
    loads = torch.stack([router.load_E for router in model.routers()])
    dist.all_reduce(loads)
    expected = torch.stack([router.load_E for router in alone.routers()])
    return Step(
        loss=abs(float(loss) / float(whole.detach()) - 1),
        gradient=max(_difference(a, b) for a, b in zip(model.parameters(), alone.parameters(), strict=True)),
        loads_equal=torch.equal(loads, expected),
        calls=dict(counted.calls),
        traffic=counted.traffic,
        kept=kept,
        leaving=sum(_leaving(experts, plan) for experts in chosen),
    )


def _note(router: nn.Module, experts_NK: Tensor, chosen: list[Tensor]) -> None:
    assert isinstance(router, Router)
    if not router._recomputing:
        chosen.append(experts_NK)


def _leaving(experts_NK: Tensor, plan: ParallelPlan) -> int:
    here = dist.get_rank() % plan.ep
    return int((experts_NK // (CONFIG.experts // plan.ep) != here).sum())


def _difference(parameter: nn.Parameter, other: nn.Parameter) -> float:
    gradient: Any = parameter.grad
    expected = other.grad
    assert expected is not None
    return float((gradient.full_tensor() - expected).norm() / expected.norm().clamp(min=1e-12))


def _held(kind: OptimizerKind) -> Held:
    plan = ParallelPlan(dp_shard=4, ep=2)
    model = build_model(UNEVEN, meshes=build_meshes(plan), seed=3)
    optimizer = build_optimizer(model, OptimizerConfig(learning_rate=0.003, kind=kind))
    torch.autograd.backward(model(**packed(batch=1, vocab=300)).total_sum)
    gradients = sum(_bytes(p.grad) for p in model.parameters() if p.grad is not None)
    optimizer.zero_grad()
    create_optimizer_state(optimizer)
    states = [t for state in optimizer.state.values() for t in state.values() if isinstance(t, Tensor)]
    whole = build_model(UNEVEN, seed=3)
    fresh = build_model(UNEVEN, meshes=build_meshes(plan), seed=3)
    named = zip(fresh.parameters(), whole.parameters(), strict=True)
    return Held(
        weights=sum(map(_bytes, model.parameters())),
        gradients=gradients,
        optimizer=sum(map(_bytes, states)),
        rows_equal=all(torch.equal(local_of(mine), all_of_it[own_rows(mine)]) for mine, all_of_it in named),
    )


def _bytes(tensor: Tensor) -> int:
    local = local_of(tensor)
    return local.numel() * local.element_size()


def _half(precision: Precision) -> Half:
    seen: dict[str, set[torch.dtype]] = {name: set() for name in ("gains", "routers", "matrices", "outputs")}
    model = build_model(CONFIG, meshes=build_meshes(EP2), seed=3, precision=precision, recompute=Recompute.SELECTIVE)
    _watch(model, seen)
    batch = packed(batch=SEQUENCES, length=12)
    part = {name: tensor[dist.get_rank() * 4 :][:4] for name, tensor in batch.items()}
    with CountedTraffic() as counted:
        sums = model(**part)
        gathers = counted.calls["all_gather"]
        torch.autograd.backward(sums.total_sum)
    loss = sums.nll_sum.detach().clone()
    dist.all_reduce(loss)
    alone = float(build_model(CONFIG, seed=3)(**batch).nll_sum)
    return Half(
        loss=sums.nll_sum.dtype,
        gradients=frozenset(p.grad.dtype for p in model.parameters() if p.grad is not None),
        gathers=gathers,
        difference=abs(float(loss) / alone - 1),
        **{name: frozenset(types) for name, types in seen.items()},
    )


def _watch(model: Transformer, seen: dict[str, set[torch.dtype]]) -> None:
    def norm(module: nn.Module, _: Any, output: Tensor) -> None:
        assert isinstance(module, Norm)
        seen["gains"].add(module.gain.dtype)
        seen["matrices"].add(module.gate_up.dtype)
        seen["outputs"].add(output.dtype)

    def block(module: Any, _: Any) -> None:
        seen["gains"].add(module.moe.latent_gain.dtype)
        seen["routers"].add(module.moe.router.weight.dtype)
        seen["matrices"] |= {module.attention.query.dtype, module.moe.experts.down.dtype, module.shared.down.dtype}

    for module in model.modules():
        if isinstance(module, Norm):
            module.register_forward_hook(norm)
    for one in model.blocks:
        one.register_forward_pre_hook(block)
