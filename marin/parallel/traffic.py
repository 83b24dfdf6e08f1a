"""Bytes that a rank sends in a step: the least that a plan needs, and what a step really sent.

Counted is what goes to other ranks in the forward and backward pass. An all-gather or reduce-scatter over n ranks sends
(n - 1)/n of the whole tensor, an all-reduce twice that, an all-to-all the rows that leave.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from marin.model.config import ModelConfig
from marin.model.initialisation import is_stack
from marin.model.parameters import is_wide
from marin.model.transformer import Transformer
from marin.parallel.compat import DispatchMode, group_of
from marin.parallel.config import ParallelPlan

COUNT_BYTES = 8
"""Numbers of rows travel as int64."""


@dataclass(frozen=True)
class Traffic:
    """Bytes that a rank sends to others in one step, by collective."""

    all_gather: float = 0.0
    reduce_scatter: float = 0.0
    all_reduce: float = 0.0
    all_to_all: float = 0.0

    @property
    def total(self) -> float:
        """All of them."""
        return self.all_gather + self.reduce_scatter + self.all_reduce + self.all_to_all


def least_traffic(
    model: ModelConfig,
    plan: ParallelPlan,
    *,
    tokens: int,
    micro_batches: int = 1,
    dtype: torch.dtype = torch.float32,
    half: torch.dtype | None = None,
    reduce_every_micro_batch: bool = False,
    leaving: float | None = None,
) -> Traffic:
    """The least that the mean rank sends in a step in which every rank reads `tokens` tokens.

    Blocks are gathered for either pass of every micro-batch and the outer parameters once; gradients are summed once a
    step, or after every micro-batch; rows travel twice forward and twice backward, whatever is recomputed. `leaving`
    is the share of rows whose expert is on another rank, (ep - 1)/ep when routing is even. Weights are of `dtype` and
    multiplied in `half` (None: the same). Shards are counted without padding.
    """
    with torch.device("meta"):
        named = [(name, p.numel()) for name, p in Transformer(model).named_parameters()]
    gathered = reduced = replicated = 0.0
    for name, elements in named:
        ranks = plan.efsdp if is_stack(name) else plan.dp_shard
        whole = elements / (plan.ep if is_stack(name) else 1)
        itemsize = dtype.itemsize if half is None or is_wide(name) else half.itemsize
        passes = 2 if name.startswith("blocks.") else 1
        summed = whole * max(4, dtype.itemsize)
        gathered += passes * _others(ranks) * whole * itemsize
        reduced += _others(ranks) * summed
        replicated += 2 * _others(plan.dp_replicate) * summed / ranks
    share = _others(plan.ep) if leaving is None else leaving
    rows = tokens * model.experts_per_token * share
    width = 4 * model.latent_width * (half or dtype).itemsize
    counts = micro_batches * _others(plan.ep) * model.experts * COUNT_BYTES
    sums = micro_batches if reduce_every_micro_batch else 1
    return Traffic(
        all_gather=micro_batches * gathered,
        reduce_scatter=sums * reduced,
        all_reduce=sums * replicated,
        all_to_all=model.layers * (rows * width + counts) if plan.ep > 1 else 0.0,
    )


def _others(ranks: int) -> float:
    return (ranks - 1) / ranks


class CountedTraffic(DispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """While it is entered, counts this rank's collectives and the bytes that they send to others."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.calls: Counter[str] = Counter()
        self._bytes: dict[str, float] = defaultdict(float)

    @property
    def traffic(self) -> Traffic:
        """What was sent so far."""
        return Traffic(**self._bytes)

    def __torch_dispatch__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operation, and count it if it is a collective."""
        made = function(*args, **(kwargs or {}))
        kind = _KINDS.get(str(function).removesuffix(".default"))
        if kind is not None:
            self.calls[kind] += 1
            self._bytes[kind] += _sent(kind, args, made)
        return made


_KINDS = {
    "c10d._allgather_base_": "all_gather",
    "c10d._reduce_scatter_base_": "reduce_scatter",
    "c10d.allreduce_": "all_reduce",
    "c10d.alltoall_base_": "all_to_all",
    "_c10d_functional.all_gather_into_tensor": "all_gather",
    "_c10d_functional.reduce_scatter_tensor": "reduce_scatter",
    "_c10d_functional.all_reduce": "all_reduce",
    "_c10d_functional.all_to_all_single": "all_to_all",
}


def _sent(kind: str, args: tuple[Any, ...], made: Any) -> float:
    names = (a for a in args if isinstance(a, torch.ScriptObject) or (isinstance(a, str) and a not in _OPERATIONS))
    group = group_of(next(names))
    ranks = dist.get_world_size(group)
    tensors = [t for a in args for t in (a if isinstance(a, list) else [a]) if isinstance(t, Tensor)]
    tensors += [made] if isinstance(made, Tensor) else []
    sizes = [t.numel() * t.element_size() for t in tensors]
    if kind == "all_reduce":
        return 2 * _others(ranks) * sizes[0]
    if kind != "all_to_all":
        return _others(ranks) * max(sizes)
    # In place the input is the second tensor; the splits of the input are the last list.
    given = tensors[1] if isinstance(args[1], Tensor) else tensors[0]
    size = given.numel() * given.element_size()
    splits = [a for a in args if isinstance(a, list) and a and isinstance(a[0], int)]
    if not splits:
        return _others(ranks) * size
    own = splits[-1][dist.get_rank(group)]
    leaving: float = size - own * size / max(1, sum(splits[-1]))
    return leaving


_OPERATIONS = frozenset({"sum", "avg", "max", "min"})
"""Names of reductions, which stand among a functional collective's arguments as the group's name does."""
