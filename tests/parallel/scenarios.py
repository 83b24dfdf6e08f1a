"""What the ranks of the parity tests do: one training step of a sharded model beside the same step in one process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from marin.model.transformer import Transformer
from marin.optim.build import build_optimizer
from marin.optim.config import OptimizerConfig, OptimizerKind
from marin.parallel.build import build_model
from marin.parallel.config import ParallelPlan, Precision, Recompute
from marin.parallel.gradients import clip_gradients, gradient_norm, gradient_norms_by_group, weight_norms_by_group
from marin.parallel.meshes import build_meshes
from marin.parallel.reduction import MeshReducer
from tests.model.small import SMALL, packed

CONFIG = replace(SMALL, experts=8, layers=3)


@dataclass(frozen=True)
class Scenario:
    """A sharded form of the model and how its step is computed."""

    plan: ParallelPlan
    dtype: torch.dtype = torch.float64
    recompute: Recompute = Recompute.NONE
    micro_batches: int = 1
    starved: bool = False
    """The router's bias sends every token to the experts of the first ranks."""
    optimizer: str = "sgd"
    steps: int = 2

    @property
    def name(self) -> str:
        """Readable key."""
        plan = self.plan
        words = [f"replicate{plan.dp_replicate}-shard{plan.dp_shard}-ep{plan.ep}", str(self.dtype).split(".")[-1]]
        words += [self.recompute.value, f"micro{self.micro_batches}", self.optimizer] + ["starved"] * self.starved
        return "-".join(words)


@dataclass(frozen=True)
class Difference:
    """How far the sharded step is from the one in one process."""

    loss: float
    gradient: float
    worst: str
    norm: float
    bias: float
    weight: float
    clipped: float
    missing: tuple[str, ...]


def differences(scenarios: list[Scenario]) -> dict[str, Difference]:
    """Every scenario on this process group."""
    return {scenario.name: _difference(scenario) for scenario in scenarios}


@dataclass(frozen=True)
class HalfStep:
    """One step with bf16 compute on fp32 weights."""

    loss: float
    expected: float
    router_weight: torch.dtype
    loss_dtype: torch.dtype
    gradient_dtypes: frozenset[torch.dtype]


def half_step(recompute: Recompute = Recompute.FULL) -> HalfStep:
    """bf16 compute on this process group beside fp32 in one process."""
    meshes = build_meshes(ParallelPlan(dp_shard=2, ep=2), "cpu")
    model = build_model(CONFIG, meshes=meshes, seed=3, precision=Precision.BF16, recompute=recompute)
    alone = build_model(CONFIG, seed=3)
    seen: list[torch.dtype] = []
    model.routers()[0].register_forward_pre_hook(lambda router, _: seen.append(router.weight.dtype))
    whole = packed(batch=4, length=12)
    tokens = int(whole["loss_mask_BT"].sum())
    mine = slice(2 * dist.get_rank(), 2 * dist.get_rank() + 2)
    sums = model(**{n: t[mine] for n, t in whole.items()})
    (sums.total_sum / tokens).backward()
    loss = sums.nll_sum.detach() / tokens
    MeshReducer(meshes).sum_(loss)
    return HalfStep(
        loss=float(loss),
        expected=float(alone(**whole).nll_sum) / tokens,
        router_weight=seen[0],
        loss_dtype=sums.nll_sum.dtype,
        gradient_dtypes=frozenset(p.grad.dtype for p in model.parameters()),
    )


def everything_on_two(scenarios: list[Scenario]) -> tuple[dict[str, Difference], HalfStep]:
    """All that two ranks are asked, in one start of processes."""
    return differences(scenarios), half_step()


def _wake(model: Transformer, starved: bool) -> None:
    """Leave the neutral starting values, by the same numbers in every form of the model."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("head_gate"):
                parameter += 0.1
            elif name.rsplit(".", 1)[-1] in ("taps", "gain", "latent_gain"):
                parameter *= 1.2
        for router in model.routers():
            bias = torch.linspace(-0.05, 0.05, router.experts)
            if starved:
                bias = torch.where(torch.arange(router.experts) < router.experts // 4, 100.0, 0.0)
            router.bias.copy_(bias)


def _step(model: Transformer, batches: list[dict[str, Any]], tokens: int) -> torch.Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for batch in batches:
        sums = model(**batch)
        loss = sums.total_sum / tokens
        loss.backward()
        total += loss.detach().double()
    return total


def _difference(scenario: Scenario) -> Difference:
    meshes = build_meshes(scenario.plan, "cpu")
    model = build_model(CONFIG, meshes=meshes, seed=3, dtype=scenario.dtype, recompute=scenario.recompute)
    alone = build_model(CONFIG, seed=3, dtype=scenario.dtype)
    reducer = MeshReducer(meshes)
    for form in (model, alone):
        _wake(form, scenario.starved)
    optimizers = [_optimizer(form, scenario.optimizer) for form in (model, alone)]
    found: dict[str, float] = dict.fromkeys(("loss", "gradient", "norm", "bias", "weight", "clipped"), 0.0)
    worst, missing = "", set()
    for step in range(scenario.steps):
        whole = packed(batch=4 * scenario.micro_batches, length=12, seed=step)
        tokens = int(whole["loss_mask_BT"].sum())
        micro = [{n: t[m :: scenario.micro_batches] for n, t in whole.items()} for m in range(scenario.micro_batches)]
        share = 4 // scenario.plan.data_ranks
        mine = slice(dist.get_rank() * share, (dist.get_rank() + 1) * share)
        loss = _step(model, [{n: t[mine] for n, t in batch.items()} for batch in micro], tokens)
        reducer.sum_(loss)
        expected = _step(alone, micro, tokens)
        found["loss"] = max(found["loss"], abs(float(loss - expected)) / float(expected))
        for (name, a), (_, b) in zip(model.named_parameters(), alone.named_parameters(), strict=True):
            if a.grad is None or b.grad is None:
                missing.add(name)
                continue
            error = _relative(a.grad, b.grad)
            if error > found["gradient"]:
                found["gradient"], worst = error, name
        norms = [gradient_norm(form) for form in (model, alone)]
        found["norm"] = max(found["norm"], abs(float(norms[0].double() / norms[1].double()) - 1))
        for measure in (gradient_norms_by_group, weight_norms_by_group):
            own, theirs = measure(model), measure(alone)
            found["norm"] = max(found["norm"], *(abs(own[g] - n) / max(n, 1e-12) for g, n in theirs.items()))
        half = 0.5 * float(norms[1])
        clip_gradients(model, norms[0], half)
        clip_gradients(alone, norms[1], half)
        found["clipped"] = max(found["clipped"], abs(float(gradient_norm(model).double() / norms[1]) - 0.5))
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        statistics = model.update_router_bias(reducer), alone.update_router_bias()
        assert torch.equal(statistics[0].load_LE, statistics[1].load_LE)
        assert statistics[0].tokens == statistics[1].tokens == whole["tokens_BT"].numel()
        for a, b in zip(model.routers(), alone.routers(), strict=True):
            found["bias"] = max(found["bias"], float((a.bias.double() - b.bias.double()).abs().max()))
    for (_, a), (_, b) in zip(model.named_parameters(), alone.named_parameters(), strict=True):
        found["weight"] = max(found["weight"], _relative(a.detach(), b.detach()))
    return Difference(worst=worst, missing=tuple(sorted(missing)), **found)


def _optimizer(model: Transformer, kind: str) -> torch.optim.Optimizer:
    if kind == "sgd":
        return torch.optim.SGD(model.parameters(), lr=0.05)
    return build_optimizer(model, OptimizerConfig(learning_rate=0.003, kind=OptimizerKind(kind)))


def _relative(a: torch.Tensor, b: torch.Tensor) -> float:
    full = a.full_tensor() if isinstance(a, DTensor) else a
    return float((full.double() - b.double()).norm() / b.double().norm().clamp(min=1e-12))
