"""Expert exchange: rows travel to the rank that has their expert, and back.

Shape letters: see `marin.model.outputs`; those of slots in `marin.model.capacity`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module

import torch
import torch.distributed as dist
from torch import Tensor

from marin.model.capacity import (
    Arrival,
    collect,
    fill,
    fill_slots,
    put_back,
    receiver_limit,
    sender_limit,
    take_slots,
)
from marin.model.config import ALL_TO_ALL, CapacityConfig
from marin.model.dispatch import Dispatched, Dispatcher, Order, gather, sort_by_expert, spread
from marin.parallel.exchange_clock import ExchangeClock

DispatcherFactory = Callable[[dist.ProcessGroup, CapacityConfig | None], Dispatcher]
"""Makes the dispatcher of all layers for the ranks that share experts (see `marin.model.dispatch.Dispatcher` for what
it has to keep to), dropless when there is no capacity. It raises ValueError for what it cannot do.
"""


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
        local_experts(experts, ranks)
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


@dataclass(frozen=True)
class LimitedAllToAllDispatcher:
    """Exchange of buffers of fixed size over the ranks of `group`; what they have no room for is dropped.

    The rule is that of `marin.model.capacity`. No rank waits for its device to learn how much to send. Every rank takes
    part in every exchange with equally many tokens.
    """

    group: dist.ProcessGroup
    capacity: CapacityConfig
    clock: ExchangeClock = field(default_factory=ExchangeClock, compare=False)

    def dispatch(self, x_NL: Tensor, experts_NK: Tensor, experts: int) -> Dispatched:
        """Fill the slots for each rank, exchange them with the experts that they are for, and take what is allowed."""
        ranks = dist.get_world_size(self.group)
        local = local_experts(experts, ranks)
        size = (*experts_NK.shape, ranks)
        limit = sender_limit(self.capacity, *size)
        slots = fill_slots(experts_NK, experts, ranks, limit)
        expert_S = torch.empty_like(slots.expert_S)
        dist.all_to_all_single(expert_S, slots.expert_S, group=self.group)
        each = [limit] * ranks
        arrived = self.clock.exchange("dispatch", fill(x_NL, slots, local), each, each, self.group)
        arrival = take_slots(expert_S, local, ranks, receiver_limit(self.capacity, *size))
        rows_ML = arrived.index_select(0, arrival.taken_M)
        dropped = slots.dropped + arrival.dropped
        return Dispatched(rows_ML, arrival.counts_E, slots, dropped, arrival, exact=False)

    def combine(self, rows_RL: Tensor, weights_NK: Tensor, dispatched: Dispatched) -> Tensor:
        """Put the rows back into their slots, send these back, and sum each token's rows with their weights."""
        arrival: Arrival = dispatched.exchange
        slots = dispatched.order
        ranks = dist.get_world_size(self.group)
        back = put_back(rows_RL, arrival, slots.token_S.numel())
        each = [back.shape[0] // ranks] * ranks
        returned = self.clock.exchange("combine", back, each, each, self.group)
        return collect(returned, weights_NK, slots, dispatched.counts_E.numel())


def all_to_all(group: dist.ProcessGroup, capacity: CapacityConfig | None) -> Dispatcher:
    """torch's own all-to-all: with uneven splits, or of fixed size when there is a capacity."""
    return AllToAllDispatcher(group) if capacity is None else LimitedAllToAllDispatcher(group, capacity)


def dispatchers(name: str, group: dist.ProcessGroup, capacity: CapacityConfig | None) -> tuple[Dispatcher, Dispatcher]:
    """The dispatchers for training and for evaluation, which drops nothing, by the name in `compute.dispatch`."""
    make = dispatcher_factory(name)
    training = make(group, capacity)
    return training, training if capacity is None else make(group, None)


def dispatcher_factory(name: str) -> DispatcherFactory:
    """`all_to_all`, or what lies under module:function; a name, since every rank is a process of its own and must find
    it. Raises ValueError when there is no such thing.
    """
    if name == ALL_TO_ALL:
        return all_to_all
    module, _, function = name.partition(":")
    try:
        made: DispatcherFactory = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"compute.dispatch is {name!r}, which cannot be imported on this rank: {error}") from error
    return made


def local_experts(experts: int, ranks: int) -> int:
    """Experts of one rank; raises ValueError when they do not divide."""
    if experts % ranks:
        raise ValueError(f"ep is {ranks}, which does not divide the model's {experts} experts")
    return experts // ranks


def _reversed(order: Order) -> Order:
    """The order that undoes a permutation of rows (one expert a row)."""
    return Order(order.place_NK.squeeze(1), order.token_R.unsqueeze(1), order.counts_E)
