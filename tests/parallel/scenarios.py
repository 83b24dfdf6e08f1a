"""What the ranks of the parity tests do: one training step of a sharded model beside the same step in one process."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from marin.model.capacity import CapacityDispatcher
from marin.model.dispatch import LocalDispatcher
from marin.model.transformer import Transformer
from marin.optim import matrix_exchange, muonh
from marin.optim.build import build_optimizer
from marin.optim.config import OptimizerConfig, OptimizerKind
from marin.optim.hyperball import orthogonalise
from marin.parallel.build import build_model
from marin.parallel.config import ParallelPlan, Precision, Recompute
from marin.parallel.gradients import clip_gradients, gradient_norm, gradient_norms_by_group, weight_norms_by_group
from marin.parallel.meshes import Meshes, build_meshes
from marin.parallel.parts import local_of
from marin.parallel.reduction import MeshReducer
from tests.model.small import SMALL, packed
from tests.parallel.divided_matrices import DividedMatrices, divided_matrices
from tests.parallel.limited_exchange import LimitedAnswers, limited_answers

CONFIG = replace(SMALL, experts=8, layers=2)
SEQUENCES = 8
"""Of every step's global batch."""


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
    sizes: tuple[tuple[str, Any], ...] = ()
    """Fields of the model that differ from `CONFIG`."""
    label: str = ""
    """Word for `sizes` in the name."""

    @property
    def name(self) -> str:
        """Readable key."""
        plan = self.plan
        words = [f"replicate{plan.dp_replicate}-shard{plan.dp_shard}-ep{plan.ep}", str(self.dtype).split(".")[-1]]
        words += [self.recompute.value, f"micro{self.micro_batches}", self.optimizer] + ["starved"] * self.starved
        words += [self.label] if self.label else [f"{name}{size}" for name, size in self.sizes]
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
    first_gradient: float
    """Of the first step, before optimizers have divided by small numbers."""
    missing: tuple[str, ...]
    orthogonalised: int
    """Matrices that this rank orthogonalised in the last step."""
    copies_agree: bool
    """Weights of the replicas are equal bit for bit."""


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


def everything_on_two(
    scenarios: list[Scenario],
) -> tuple[dict[str, Difference], HalfStep, LimitedAnswers, DividedMatrices]:
    """All that two ranks are asked, in one start of processes."""
    return differences(scenarios), half_step(), limited_answers(), divided_matrices()


def everything_on_four(scenarios: list[Scenario]) -> tuple[dict[str, Difference], LimitedAnswers, DividedMatrices]:
    """All that four ranks are asked."""
    return differences(scenarios), limited_answers(), divided_matrices()


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
    for number, batch in enumerate(batches, 1):
        for router in model.routers():
            router.is_last_micro_batch = number == len(batches)
        sums = model(**batch)
        loss = sums.total_sum / tokens
        loss.backward()
        total += loss.detach().double()
    return total


def _difference(scenario: Scenario) -> Difference:
    meshes = build_meshes(scenario.plan, "cpu")
    config = replace(CONFIG, **dict(scenario.sizes))
    model = build_model(config, meshes=meshes, seed=3, dtype=scenario.dtype, recompute=scenario.recompute)
    reducer = MeshReducer(meshes)
    _wake(model, scenario.starved)
    optimizer = _optimizer(model, scenario.optimizer)
    # What a capacity drops depends on who shares the experts.
    senders = 1 if config.balancing.capacity is None else scenario.plan.ep
    alone = _alone(scenario.sizes, scenario.dtype, scenario.starved, scenario.optimizer, senders)
    found: dict[str, float] = dict.fromkeys(("loss", "gradient", "norm", "bias", "weight", "clipped"), 0.0)
    found["first_gradient"] = float("nan")
    worst, missing, orthogonalised = "", set(), 0
    for step, expected in zip(range(scenario.steps), alone, strict=False):
        whole = packed(batch=SEQUENCES, length=12, seed=step)
        micro = [{n: t[m :: scenario.micro_batches] for n, t in whole.items()} for m in range(scenario.micro_batches)]
        share = SEQUENCES // scenario.micro_batches // scenario.plan.data_ranks
        mine = slice(dist.get_rank() * share, (dist.get_rank() + 1) * share)
        loss = _step(model, [{n: t[mine] for n, t in batch.items()} for batch in micro], _real_tokens(whole))
        reducer.sum_(loss)
        found["loss"] = max(found["loss"], abs(float(loss) - expected.loss) / expected.loss)
        for name, parameter in model.named_parameters():
            if parameter.grad is None:
                missing.add(name)
                continue
            error = _relative(parameter.grad, expected.gradients[name])
            if error > found["gradient"]:
                found["gradient"], worst = error, name
        if step == 0:
            found["first_gradient"] = found["gradient"]
        norm = gradient_norm(model)
        found["norm"] = max(found["norm"], abs(float(norm.double()) / expected.norm - 1))
        for own, theirs in zip(_group_norms(model), expected.group_norms, strict=True):
            found["norm"] = max(found["norm"], *(abs(own[g] - n) / max(n, 1e-6) for g, n in theirs.items()))
        clip_gradients(model, norm, 0.5 * expected.norm)
        found["clipped"] = max(found["clipped"], abs(float(gradient_norm(model).double()) / expected.norm - 0.5))
        with counted_orthogonalisations() as counts:
            optimizer.step()
        optimizer.zero_grad()
        orthogonalised = sum(counts)
        statistics = model.update_router_bias(reducer)
        assert torch.equal(statistics.load_LE, expected.load_LE)
        assert statistics.dropped == expected.dropped
        assert statistics.tokens == whole["tokens_BT"].numel()
        for router, bias in zip(model.routers(), expected.biases, strict=True):
            found["bias"] = max(found["bias"], float((router.bias.double() - bias.double()).abs().max()))
    for name, parameter in model.named_parameters():
        error = _relative(parameter.detach(), alone[scenario.steps - 1].weights[name])
        found["weight"] = max(found["weight"], error)
    return Difference(
        worst=worst,
        missing=tuple(sorted(missing)),
        orthogonalised=orthogonalised,
        copies_agree=_copies_agree(model, meshes),
        **found,
    )


@dataclass(frozen=True)
class AloneStep:
    """One step of the whole model in one process."""

    loss: float
    gradients: dict[str, torch.Tensor]
    norm: float
    group_norms: tuple[dict[str, float], ...]
    load_LE: torch.Tensor
    dropped: int
    biases: tuple[torch.Tensor, ...]
    weights: dict[str, torch.Tensor]


@cache
def _alone(
    sizes: tuple[tuple[str, Any], ...], dtype: torch.dtype, starved: bool, optimizer: str, senders: int
) -> list[AloneStep]:
    """Three steps: the same for every plan, and for any micro-batches to rounding."""
    model = build_model(replace(CONFIG, **dict(sizes)), seed=3, dtype=dtype)
    if (capacity := model.config.balancing.capacity) is not None:
        model.set_dispatcher(CapacityDispatcher(capacity, senders), LocalDispatcher())
    _wake(model, starved)
    rule = _optimizer(model, optimizer)
    steps = []
    for step in range(3):
        whole = packed(batch=SEQUENCES, length=12, seed=step)
        loss = _step(model, [whole], _real_tokens(whole))
        gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
        norm, group_norms = gradient_norm(model), _group_norms(model)
        clip_gradients(model, norm, 0.5 * float(norm))
        rule.step()
        rule.zero_grad()
        statistics = model.update_router_bias()
        load_LE, dropped = statistics.load_LE, statistics.dropped
        biases = tuple(router.bias.clone() for router in model.routers())
        weights = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        steps.append(AloneStep(float(loss), gradients, float(norm), group_norms, load_LE, dropped, biases, weights))
    return steps


def _real_tokens(batch: dict[str, torch.Tensor]) -> int:
    return int(batch["loss_mask_BT"].sum())


def _group_norms(model: Transformer) -> tuple[dict[str, float], ...]:
    return gradient_norms_by_group(model), weight_norms_by_group(model)


@contextmanager
def counted_orthogonalisations() -> Iterator[list[int]]:
    """The number of matrices in every stack that this process orthogonalises meanwhile."""
    counts: list[int] = []

    def counting(matrices: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        counts.append(matrices.shape[0])
        return orthogonalise(matrices, dtype)

    with (
        mock.patch.object(muonh, "orthogonalise", counting),
        mock.patch.object(matrix_exchange, "orthogonalise", counting),
    ):
        yield counts


def _copies_agree(model: Transformer, meshes: Meshes) -> bool:
    """Whether all replicas hold the same weights, bit for bit."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(local_of(parameter).detach().contiguous().numpy().tobytes())
    group = meshes.dense["dp_replicate"].get_group()
    found: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(found, digest.hexdigest(), group=group)
    return len(set(found)) == 1


def _optimizer(model: Transformer, kind: str) -> torch.optim.Optimizer:
    if kind == "sgd":
        return torch.optim.SGD(model.parameters(), lr=0.05)
    return build_optimizer(model, OptimizerConfig(learning_rate=0.003, kind=OptimizerKind(kind)))


def _relative(a: torch.Tensor, b: torch.Tensor) -> float:
    # With one expert a token its weight is constant, and the router's gradient is nothing but rounding.
    full = a.full_tensor() if isinstance(a, DTensor) else a
    return float((full.double() - b.double()).norm() / b.double().norm().clamp(min=1e-6))
