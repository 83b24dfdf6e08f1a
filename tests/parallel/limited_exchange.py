"""The rule of a capacity, written slowly, and what ranks do with it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
import torch.distributed as dist
from torch import Tensor

from marin.model.capacity import CapacityDispatcher, sender_limit
from marin.model.config import Balancing, BalancingConfig, CapacityConfig, ComputeConfig
from marin.model.dispatch import Dispatched, Dispatcher, LocalDispatcher
from marin.parallel.build import build_model
from marin.parallel.config import ParallelPlan, Recompute
from marin.parallel.exchange import LimitedAllToAllDispatcher, all_to_all
from marin.parallel.meshes import build_meshes
from marin.parallel.reduction import MeshReducer
from marin.parallel.sharding import set_last_micro_batch
from marin.parallel.traffic import CountedTraffic
from tests.model.small import SMALL, packed


def kept_by_rule(experts_NK: Tensor, experts: int, ranks: int, capacity: CapacityConfig) -> tuple[Tensor, int]:
    """Which assignments are kept when `ranks` ranks read equal parts of the tokens, and how many are dropped."""
    n, k = experts_NK.shape
    part, local = n // ranks, experts // ranks
    send = min(part * k, max(1, int(capacity.factor_sender * part * k / ranks)))
    take = max(1, int(capacity.factor_receiver * part * k))
    kept = torch.zeros(n, k, dtype=torch.bool)
    for receiver in range(ranks):
        queues = []
        for sender in range(ranks):
            tokens = range(sender * part, (sender + 1) * part)
            mine = [(t, c) for c in range(k) for t in tokens if int(experts_NK[t, c]) // local == receiver]
            queues.append(mine[:send])
        in_turn = [queue[place] for place in range(send) for queue in queues if place < len(queue)]
        for token, choice in in_turn[:take]:
            kept[token, choice] = True
    return kept, int((~kept).sum())


def reference_sum(x_NL: Tensor, experts_NK: Tensor, weights_NK: Tensor, scale_EL: Tensor, kept_NK: Tensor) -> Tensor:
    """Weighted sum over the kept assignments of experts that scale their rows."""
    rows = []
    for n in range(len(x_NL)):
        row = torch.zeros_like(x_NL[n])
        for j in range(experts_NK.shape[1]):
            if kept_NK[n, j]:
                row = row + weights_NK[n, j] * scale_EL[experts_NK[n, j]] * x_NL[n]
        rows.append(row)
    return torch.stack(rows)


def case(*, tokens: int, experts: int, k: int, skew: float, width: int = 3) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Tokens, their experts (the first ones liked best by `skew`), weights, and what each expert multiplies with."""
    generator = torch.Generator().manual_seed(7)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    liked = random(tokens, experts) - skew * torch.arange(experts) / experts
    return random(tokens, width), liked.topk(k).indices, random(tokens, k).sigmoid(), random(experts, width)


@dataclass(frozen=True)
class Limited:
    """One limited exchange as a rank saw it, beside the rule."""

    dropped: int
    """Of all ranks."""
    expected_dropped: int
    difference: float
    """The largest of outputs and gradients."""
    calls: int
    sent: float
    """Bytes."""
    fixed: float
    """Bytes that leave whatever the router chooses."""


@dataclass(frozen=True)
class Forward:
    """A model's steps under a capacity and a balance loss, with one way to recompute."""

    loss: float
    gradient: float
    """Largest relative difference to one process."""
    dropped: int
    calls: int
    """All-to-alls of a step."""
    pooled: int
    """All-reduces that were begun in the second step's forward pass."""
    widths: frozenset[int]
    """Of the rows that travelled, as the plug-in saw them."""


LimitedAnswers = tuple[list[Limited], dict[Recompute, Forward]]


def limited_answers() -> LimitedAnswers:
    """All that ranks are asked about capacities."""
    return limited_exchanges(), limited_models()


CASES = tuple(
    (capacity, skew)
    for capacity in (CapacityConfig(1.15, 1.15), CapacityConfig(4.0, 1.0), CapacityConfig(1.5, 1.0))
    for skew in (0.0, 3.0)
)
TOKENS, EXPERTS, CHOSEN, WIDTH = 6, 8, 3, 3
"""Tokens of one rank."""


def limited_exchanges() -> list[Limited]:
    """Every case, with experts divided over all ranks."""
    return [_limited(*one) for one in CASES]


def _limited(capacity: CapacityConfig, skew: float) -> Limited:
    ranks, rank = dist.get_world_size(), dist.get_rank()
    x, experts, weights, scale = case(tokens=TOKENS * ranks, experts=EXPERTS, k=CHOSEN, skew=skew, width=WIDTH)
    kept, expected_dropped = kept_by_rule(experts, EXPERTS, ranks, capacity)
    whole = [t.clone().requires_grad_() for t in (x, weights, scale)]
    expected = reference_sum(whole[0], experts, whole[1], whole[2], kept)
    (expected * expected).sum().backward()
    mine, own = slice(rank * TOKENS, (rank + 1) * TOKENS), slice(rank * EXPERTS // ranks, (rank + 1) * EXPERTS // ranks)
    leaves = [t.clone().requires_grad_() for t in (x[mine], weights[mine], scale[own])]
    group = dist.group.WORLD
    assert group is not None
    dispatcher = LimitedAllToAllDispatcher(group, capacity)
    with CountedTraffic() as counted:
        sent = dispatcher.dispatch(leaves[0], experts[mine], EXPERTS)
        used = int(sent.counts_E.sum())
        # As experts do: what is behind the last group may be anything, and comes back as zeros.
        y_RL = torch.zeros_like(sent.rows_RL)
        y_RL[:used] = sent.rows_RL[:used] * leaves[2].repeat_interleave(sent.counts_E, 0)
        y = dispatcher.combine(y_RL, leaves[1], sent)
        (y * y).sum().backward()
    dropped = torch.as_tensor(sent.dropped).clone()
    dist.all_reduce(dropped)
    pairs = [
        (y.detach(), expected[mine].detach()),
        (leaves[0].grad, whole[0].grad[mine]),
        (leaves[1].grad, whole[1].grad[mine]),
    ]
    pairs.append((leaves[2].grad, whole[2].grad[own]))
    slots = ranks * sender_limit(capacity, TOKENS, CHOSEN, ranks)
    return Limited(
        dropped=int(dropped),
        expected_dropped=expected_dropped,
        difference=max(float((a - b).abs().max()) for a, b in pairs),
        calls=counted.calls["all_to_all"],
        sent=counted.traffic.all_to_all,
        fixed=(ranks - 1) / ranks * slots * 8 * (4 * WIDTH + 1),
    )


@dataclass(frozen=True)
class Remembering:
    """A back end of one's own around the built-in one."""

    inner: Dispatcher
    widths: list[int] = field(default_factory=list)

    def dispatch(self, x_NL: Tensor, experts_NK: Tensor, experts: int) -> Dispatched:
        """Note how wide rows are."""
        self.widths.append(x_NL.shape[1])
        return self.inner.dispatch(x_NL, experts_NK, experts)

    def combine(self, rows_RL: Tensor, weights_NK: Tensor, dispatched: Dispatched) -> Tensor:
        """The same on the way back."""
        self.widths.append(rows_RL.shape[1])
        return self.inner.combine(rows_RL, weights_NK, dispatched)


def remembering(group: dist.ProcessGroup, capacity: CapacityConfig | None) -> Remembering:
    """What `compute.dispatch` names."""
    return Remembering(all_to_all(group, capacity))


BALANCING = BalancingConfig(
    kind=Balancing.QUANTILE, router_z_loss=0.01, capacity=CapacityConfig(factor_sender=2.0, factor_receiver=1.0)
)
LIMITED_MODEL = replace(SMALL, experts=8, layers=2, sequence_length=12, balancing=BALANCING)


def limited_models() -> dict[Recompute, Forward]:
    """Two steps of a model whose back end is named, under every policy."""
    return {recompute: _forward(recompute) for recompute in Recompute}


def _forward(recompute: Recompute) -> Forward:
    ranks, rank = dist.get_world_size(), dist.get_rank()
    meshes = build_meshes(ParallelPlan(dp_shard=ranks, ep=ranks), "cpu")
    compute = ComputeConfig(dispatch=f"{__name__}:remembering")
    model = build_model(LIMITED_MODEL, meshes=meshes, seed=3, dtype=torch.float64, recompute=recompute, compute=compute)
    alone = build_model(LIMITED_MODEL, seed=3, dtype=torch.float64)
    assert BALANCING.capacity is not None
    alone.set_dispatcher(CapacityDispatcher(BALANCING.capacity, ranks), LocalDispatcher())
    loss_difference = gradient_difference = 0.0
    pooled = dropped = calls = 0
    for step in range(2):
        batch = packed(batch=4, length=12, seed=step)
        tokens = int(batch["loss_mask_BT"].sum())
        share = 4 // ranks
        set_last_micro_batch(model, True)
        with CountedTraffic() as counted:
            total = model(**{n: t[rank * share :][:share] for n, t in batch.items()}).total_sum / tokens
            pooled = counted.calls["all_reduce"]
            torch.autograd.backward(total)
        calls = counted.calls["all_to_all"]
        expected = alone(**batch).total_sum / tokens
        torch.autograd.backward(expected)
        loss = total.detach().clone()
        dist.all_reduce(loss)
        loss_difference = max(loss_difference, abs(float(loss / expected.detach()) - 1))
        for parameter, other in zip(model.parameters(), alone.parameters(), strict=True):
            assert parameter.grad is not None
            assert other.grad is not None
            error = (parameter.grad.full_tensor() - other.grad).norm() / other.grad.norm().clamp(min=1e-12)
            gradient_difference = max(gradient_difference, float(error))
            parameter.grad = other.grad = None
        found, plain = model.update_router_bias(MeshReducer(meshes)), alone.update_router_bias()
        assert found.dropped == plain.dropped
        assert torch.equal(found.load_LE, plain.load_LE)
        dropped += found.dropped
        for ours, theirs in zip(model.routers(), alone.routers(), strict=True):
            torch.testing.assert_close(ours.bias, theirs.bias, rtol=0, atol=1e-9)
    dispatcher = model.get_submodule("blocks.0.moe").dispatcher
    widths: list[int] = getattr(dispatcher, "dispatcher", dispatcher).widths
    return Forward(loss_difference, gradient_difference, dropped, calls, pooled, frozenset(widths))
