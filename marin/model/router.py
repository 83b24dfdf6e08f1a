"""Chooses experts for tokens and keeps the counts that balance them.

Counting happens in training mode only and never while activations are recomputed. The counts of a step are pooled over
micro-batches here and over ranks by a `Reducer`, once: the histogram of a layer as soon as the layer has seen the last
micro-batch, while later layers are computed; the rest after it. Between steps the routing state is two small persistent
buffers: the bias (pending for the next step) and the histogram's range.
Shape letters: see `marin.model.outputs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from marin.model.balancing import add_to_histogram, quantile_bias, sign_bias, widened
from marin.model.config import Balancing, ModelConfig
from marin.model.features import CombineWeights
from marin.model.normalisation import at_least_fp32
from marin.model.outputs import LocalReducer, Reducer, RouterStatistics
from marin.model.router_losses import balance_loss, z_loss


class PooledLoad(NamedTuple):
    """Assignments of each expert in one micro-batch, of all ranks together once `wait` has returned."""

    load_E: Tensor
    wait: Callable[[], None]


class Routing(NamedTuple):
    """Experts and combine weights of every token, and what the losses of the router are made of, if it has any."""

    experts_NK: Tensor
    weights_NK: Tensor
    logits_NE: Tensor | None = None
    load: PooledLoad | None = None


class Router(nn.Module):
    """Top-k by biased logits, weights by unbiased ones; fp32 at least."""

    bias: Tensor
    margin_range: Tensor
    margin_counts_EH: Tensor
    seen_range: Tensor
    load_E: Tensor
    probability_E: Tensor
    z_sum: Tensor
    dropped: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.experts = config.experts
        self.experts_per_token = config.experts_per_token
        self.routing_scale = config.routing_scale
        self.combine_weights = config.features.combine_weights
        self.balancing = config.balancing
        self.weight = nn.Parameter(torch.empty(config.experts, config.width))
        self.register_buffer("bias", torch.empty(config.experts))
        self.register_buffer("margin_range", torch.empty(2))
        bins = self.balancing.bins if self.balancing.kind is Balancing.QUANTILE else 0
        for name, tensor in (
            ("margin_counts_EH", torch.empty(config.experts, bins, dtype=torch.int64)),
            ("seen_range", torch.empty(2)),
            ("load_E", torch.empty(config.experts, dtype=torch.int64)),
            ("probability_E", torch.empty(config.experts)),
            ("z_sum", torch.empty(())),
            ("dropped", torch.empty((), dtype=torch.int64)),
        ):
            self.register_buffer(name, tensor, persistent=False)
        self.tokens = 0
        self.reducer: Reducer = LocalReducer()
        """Pools over ranks what must be known before the step's end."""
        self.is_last_micro_batch = False
        """Whether the step's counts are complete after the next forward pass."""
        balances = self.balancing.kind is Balancing.AUXILIARY
        self._balance_weight = self.balancing.auxiliary_coefficient if balances else 0.0
        self._range_known: bool | None = None
        self._kept_margins: list[Tensor] = []
        self._losses_N: Tensor | None = None
        self._pooled: Callable[[], None] | None = None
        self._recomputing = False
        self.register_load_state_dict_post_hook(_forget_range)  # type: ignore[no-untyped-call]  # torch leaves it untyped

    def reset_state(self) -> None:
        """No bias, no range, no counts: the state before the first step."""
        with torch.no_grad():
            self.bias.zero_()
            # An empty range says that there was no step before.
            self.margin_range.copy_(torch.tensor([1.0, -1.0]))
        self._range_known = None
        self.clear_counts()

    def clear_counts(self) -> None:
        """Forget the running step."""
        self.take_pooled()
        with torch.no_grad():
            for counter in (self.margin_counts_EH, self.load_E, self.probability_E, self.z_sum, self.dropped):
                counter.zero_()
            self.seen_range.fill_(float("-inf"))
        self.tokens = 0
        self.is_last_micro_batch = False
        self._losses_N = None
        self._kept_margins.clear()

    @contextmanager
    def recomputing(self) -> Iterator[None]:
        """While activations are made again in the backward pass: choose the same experts, count nothing."""
        before = self._recomputing
        self._recomputing = True
        try:
            yield
        finally:
            self._recomputing = before

    def forward(self, m_ND: Tensor) -> Routing:
        """Experts and combine weights for normalised tokens."""
        logits_NE = F.linear(at_least_fp32(m_ND), at_least_fp32(self.weight))
        experts_NK, threshold_N1 = self.choose(logits_NE)
        weights_NK = self._weights(logits_NE.gather(1, experts_NK))
        if self.training and not self._recomputing:
            with torch.no_grad():
                self._count(logits_NE.detach(), experts_NK, threshold_N1)
                if self.is_last_micro_batch:
                    self._begin_pooling()
        if not (self.balancing.adds_to_loss and self.training and torch.is_grad_enabled()):
            return Routing(experts_NK, weights_NK)
        load = self.pool_load(experts_NK) if self._balance_weight else None
        return Routing(experts_NK, weights_NK, logits_NE, load)

    @torch.no_grad()
    def pool_load(self, experts_NK: Tensor) -> PooledLoad:
        """Begin to count the assignments of every expert in this micro-batch over all ranks."""
        chosen = experts_NK.flatten()
        load_E = torch.zeros_like(self.load_E).scatter_add_(0, chosen, torch.ones_like(chosen))
        return PooledLoad(load_E, self.reducer.begin_sum(load_E))

    def set_losses(self, routing: Routing) -> None:
        """Make what this micro-batch adds to the loss, where it is configured, and keep it for `take_losses`.

        Called late in the block, so that the ranks' loads are pooled meanwhile.
        """
        if routing.logits_NE is None:
            return
        losses_N = self.balancing.router_z_loss * z_loss(routing.logits_NE)
        if routing.load is not None:
            routing.load.wait()
            losses_N = losses_N + self._balance_weight * balance_loss(routing.logits_NE, routing.load.load_E)
        if not self._recomputing:
            self._losses_N = losses_N

    def take_losses(self) -> Tensor | None:
        """What each token of the last forward pass adds to the loss, weighted, [N]; None if nothing."""
        taken, self._losses_N = self._losses_N, None
        return taken

    @torch.no_grad()
    def choose(self, logits_NE: Tensor) -> tuple[Tensor, Tensor]:
        """The chosen experts of every token, and its threshold: the largest biased logit that was not chosen."""
        k = self.experts_per_token
        top = torch.topk(logits_NE + self.bias, k + 1, dim=-1)
        return top.indices[:, :k], top.values[:, k:]

    def _weights(self, chosen_NK: Tensor) -> Tensor:
        """Combine weights that sum to the routing scale, from the unbiased logits of the chosen experts."""
        if self.combine_weights is CombineWeights.SOFTMAX:
            # Scaled to a fixed sum, a softmax over all experts is one over the chosen.
            return chosen_NK.softmax(-1) * self.routing_scale
        chosen_NK = torch.sigmoid(chosen_NK)
        return chosen_NK * (self.routing_scale / chosen_NK.sum(-1, keepdim=True))

    def count_dropped(self, assignments: int | Tensor) -> None:
        """Note assignments of this micro-batch that no expert computes."""
        if self.training and not self._recomputing:
            self.dropped += assignments

    def _begin_pooling(self) -> None:
        """Pool the histogram over the ranks while later layers are computed; not in the first step, whose range is
        known only after all ranks have seen all of it.
        """
        if self.balancing.kind is Balancing.QUANTILE and self._knows_range():
            self._pooled = self.reducer.begin_sum(self.margin_counts_EH)

    def take_pooled(self) -> bool:
        """Whether the histogram was pooled already; waits for it."""
        wait, self._pooled = self._pooled, None
        if wait is None:
            return False
        wait()
        return True

    def _knows_range(self) -> bool:
        if self._range_known is None:
            self._range_known = not self.is_first_step
        return self._range_known

    def _count(self, logits_NE: Tensor, experts_NK: Tensor, threshold_N1: Tensor) -> None:
        if self._pooled is not None:
            raise RuntimeError(
                "a forward pass in training mode after the step's last micro-batch: call update_router_bias first"
            )
        self.tokens += logits_NE.shape[0]
        flat = experts_NK.flatten()
        self.load_E.scatter_add_(0, flat, torch.ones_like(flat))
        partition_N1 = torch.logsumexp(logits_NE, dim=-1, keepdim=True)
        self.z_sum += partition_N1.square().sum()
        self.probability_E += (logits_NE - partition_N1).exp_().sum(0)
        if self.balancing.kind is not Balancing.QUANTILE or not logits_NE.numel():
            return
        margins_NE = logits_NE - threshold_N1
        low, high = margins_NE.aminmax()
        torch.maximum(self.seen_range, torch.stack((-low, high)).to(self.seen_range.dtype), out=self.seen_range)
        if self._knows_range():
            add_to_histogram(self.margin_counts_EH, margins_NE, self.margin_range[0], self.margin_range[1])
        else:
            # The first step's range is its own, which is known after its last micro-batch.
            self._kept_margins.append(margins_NE)

    def count_kept_margins(self, low: Tensor, high: Tensor) -> None:
        """Put the first step's margins into the histogram over [low, high]; does nothing in later steps."""
        for margins_NE in self._kept_margins:
            add_to_histogram(self.margin_counts_EH, margins_NE, low, high)
        self._kept_margins.clear()

    @property
    def is_first_step(self) -> bool:
        """True while no earlier step has left a range."""
        return bool(self.margin_range[0] > self.margin_range[1])


def _forget_range(module: nn.Module, _incompatible: Any) -> None:
    assert isinstance(module, Router)
    module._range_known = None


@torch.no_grad()
def finish_step(routers: Sequence[Router], reducer: Reducer) -> RouterStatistics:
    """Pool the step's counts, set every router's bias for the next step, and start the counts at zero.

    Called once per optimizer step on every rank, after the backward pass of the last micro-batch.
    """
    load_LE = torch.stack([router.load_E for router in routers])
    tokens_L = torch.tensor([router.tokens for router in routers], dtype=torch.int64, device=load_LE.device)
    extra_L2 = torch.stack((tokens_L, torch.stack([router.dropped for router in routers])), dim=1)
    logged_LE = torch.stack([torch.cat((r.probability_E, r.z_sum.unsqueeze(0))) for r in routers])
    counts = torch.cat((load_LE, extra_L2), dim=1)
    reducer.sum_(counts)
    reducer.sum_(logged_LE)
    load_LE, extra_L2 = counts[:, :-2], counts[:, -2:].cpu()
    tokens = int(extra_L2[0, 0])
    if tokens:
        _set_biases(routers, reducer, load_LE, tokens)
    for router in routers:
        router.clear_counts()
    share_LE = load_LE / load_LE.sum(1, keepdim=True).clamp(min=1)
    mean_LE = logged_LE / max(1, tokens)
    return RouterStatistics(
        load_LE=load_LE.cpu(),
        tokens=tokens,
        dropped=int(extra_L2[:, 1].sum()),
        z_loss_L=mean_LE[:, -1].cpu(),
        balance_loss_L=(share_LE * mean_LE[:, :-1]).sum(1).mul(load_LE.shape[1]).cpu(),
    )


def _set_biases(routers: Sequence[Router], reducer: Reducer, load_LE: Tensor, tokens: int) -> None:
    kind = routers[0].balancing.kind
    if kind is Balancing.SIGN:
        for router, load_E in zip(routers, load_LE, strict=True):
            router.bias.copy_(sign_bias(router.bias, load_E, router.balancing.sign_step))
    if kind is not Balancing.QUANTILE:
        return
    seen_L2 = torch.stack([router.seen_range for router in routers])
    reducer.max_(seen_L2)
    for router, seen in zip(routers, seen_L2, strict=True):
        low, high = -seen[0], seen[1]
        if router.is_first_step:
            own = widened(low, high, 0.0)
            router.count_kept_margins(*own)
        else:
            own = (router.margin_range[0], router.margin_range[1])
        if not router.take_pooled():
            reducer.sum_(router.margin_counts_EH)
        router.bias.copy_(quantile_bias(router.margin_counts_EH, tokens, router.experts_per_token, *own))
        router.margin_range.copy_(torch.stack(widened(low, high, router.balancing.widening)))
        router._range_known = True
