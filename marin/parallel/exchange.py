"""Expert exchange: rows travel to the rank that has their expert, and back.

Shape letters: see `marin.model.outputs`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor

from marin.model.dispatch import Dispatched, Order, gather, sort_by_expert, spread
from marin.parallel.exchange_clock import ExchangeClock


@dataclass(frozen=True)
class Exchange:
    """Who sent how many rows to whom, and the order that groups the received ones by expert."""

    sent: list[int]
    received: list[int]
    arrival: Order


@dataclass(frozen=True)
class AllToAllDispatcher:
    """Dropless exchange with uneven splits over the ranks of `group`, each of which has an equal run of the experts.

    Every rank of the group takes part in every exchange, also with nothing to send, so all ranks must run the same
    number of forward and backward passes.
    """

    group: dist.ProcessGroup
    clock: ExchangeClock = field(default_factory=ExchangeClock, compare=False)

    def dispatch(self, x_NL: Tensor, experts_NK: Tensor, experts: int) -> Dispatched:
        """Sort by expert, send each run to its rank, and group what arrives by local expert."""
        ranks = dist.get_world_size(self.group)
        if experts % ranks:
            raise ValueError(f"ep is {ranks}, which does not divide the model's {experts} experts")
        order = sort_by_expert(experts_NK, experts)
        sent_RE = order.counts_E.view(ranks, -1)
        received_RE = torch.empty_like(sent_RE)
        dist.all_to_all_single(received_RE, sent_RE, group=self.group)
        sent, received = torch.stack((sent_RE.sum(1), received_RE.sum(1))).tolist()
        arrived = self.clock.exchange("dispatch", spread(x_NL, order), received, sent, self.group)
        # Rows arrive by sender, and by expert within each; the experts want them by expert alone.
        local = torch.arange(sent_RE.shape[1], device=x_NL.device).repeat(ranks)
        expert_R1 = local.repeat_interleave(received_RE.flatten(), output_size=sum(received)).unsqueeze(1)
        arrival = sort_by_expert(expert_R1, sent_RE.shape[1])
        return Dispatched(spread(arrived, arrival), arrival.counts_E, order, 0, Exchange(sent, received, arrival))

    def combine(self, rows_RL: Tensor, weights_NK: Tensor, dispatched: Dispatched) -> Tensor:
        """Send every row back to where it came from, then sum each token's rows with their weights."""
        exchange: Exchange = dispatched.exchange
        leaving = spread(rows_RL, _reversed(exchange.arrival))
        returned = self.clock.exchange("combine", leaving, exchange.sent, exchange.received, self.group)
        return gather(returned, weights_NK, dispatched.order)


def _reversed(order: Order) -> Order:
    """The order that undoes a permutation of rows (one expert a row)."""
    return Order(order.place_NK.squeeze(1), order.token_R.unsqueeze(1), order.counts_E)
