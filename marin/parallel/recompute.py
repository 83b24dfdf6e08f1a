"""Activations that are made again in the backward pass, and results that are kept so that they are not.

A block keeps its input and is computed again when its gradient is due. Whatever must not happen twice (the exchange of
rows between ranks) or is not worth it (attention) runs through a `Keeper`: in the forward pass what it saves for its
own backward pass is really saved and its result is remembered, and when the block is computed again the result is
taken from there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from marin.model.block import Block
from marin.model.dispatch import Dispatched, Dispatcher
from marin.model.packing import Packing
from marin.model.router import Router
from marin.model.transformer import Transformer
from marin.parallel.config import Recompute

R = TypeVar("R")


class Keeper:
    """Remembers results of one block's forward pass for the time when it is computed again."""

    def __init__(self) -> None:
        self._writing: list[Any] | None = None
        self._reading: Iterator[Any] | None = None

    @contextmanager
    def first(self, results: list[Any]) -> Iterator[None]:
        """The forward pass: results go to `results`."""
        self._writing = results
        try:
            yield
        finally:
            self._writing = None

    @contextmanager
    def again(self, results: list[Any]) -> Iterator[None]:
        """The same computed again: results come from `results`, in order."""
        self._reading = iter(results)
        try:
            yield
        finally:
            self._reading = None

    def keep(self, function: Callable[..., R]) -> Callable[..., R]:
        """`function` as it is, but never run while its block is computed again."""

        @wraps(function)
        def kept(*arguments: Any) -> R:
            if self._reading is not None:
                result: R = next(self._reading)
                return result
            if self._writing is None:
                return function(*arguments)
            # The innermost hooks hold: these take tensors as they are, where the block's would make them again.
            with saved_tensors_hooks(torch.Tensor.detach, _as_it_is):
                result = function(*arguments)
            self._writing.append(_detached(result))
            return result

        return kept


def _as_it_is(tensor: Tensor) -> Tensor:
    return tensor


def _detached(value: Any) -> Any:
    """`value` with every tensor cut from its graph; those that had a gradient still ask for one."""
    if isinstance(value, Tensor):
        return value.detach().requires_grad_(value.requires_grad)
    if isinstance(value, tuple):
        parts = [_detached(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts_by_name = {f.name: _detached(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **parts_by_name)
    return value


@dataclass(frozen=True)
class KeptDispatcher:
    """A dispatcher whose exchanges happen once, whatever is computed again."""

    dispatcher: Dispatcher
    keeper: Keeper

    @property
    def clock(self) -> Any:
        """What times the exchanges, if anything does."""
        return getattr(self.dispatcher, "clock", None)

    def dispatch(self, x_NL: Tensor, experts_NK: Tensor, experts: int) -> Dispatched:
        """See `Dispatcher.dispatch`."""
        return self.keeper.keep(self.dispatcher.dispatch)(x_NL, experts_NK, experts)

    def combine(self, rows_RL: Tensor, weights_NK: Tensor, dispatched: Dispatched) -> Tensor:
        """See `Dispatcher.combine`."""
        return self.keeper.keep(self.dispatcher.combine)(rows_RL, weights_NK, dispatched)


def apply_recompute(model: Transformer, recompute: Recompute, *, exchanges: bool = False) -> None:
    """Let every block keep what `recompute` says and make the rest again in the backward pass, counting no token twice.

    `exchanges` says that tokens travel to their experts over a process group, once: those results are always kept.
    """
    if recompute is Recompute.NONE:
        return
    for block in model.blocks:
        assert isinstance(block, Block)
        keeper = Keeper()
        # Rounding may differ between the two runs; the choice of experts must not.
        router = block.moe.router
        router.choose = keeper.keep(router.choose)  # type: ignore[method-assign]  # as below
        router.pool_load = keeper.keep(router.pool_load)  # type: ignore[method-assign]
        if exchanges:
            block.moe.dispatcher = KeptDispatcher(block.moe.dispatcher, keeper)
        if recompute is Recompute.SELECTIVE:
            block.attention.attend = keeper.keep(block.attention.attend)
        block.forward = _recomputed(block, keeper)  # type: ignore[method-assign]  # a wrapper would rename weights


def _recomputed(block: Block, keeper: Keeper) -> Any:
    plain = block.forward
    router = block.moe.router

    def contexts() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        results: list[Any] = []
        return keeper.first(results), _again(keeper, results, router)

    def forward(x_BTD: Tensor, packing: Packing) -> Tensor:
        if not torch.is_grad_enabled():
            return plain(x_BTD, packing)
        y: Tensor = checkpoint(plain, x_BTD, packing, use_reentrant=False, context_fn=contexts)
        return y

    return forward


@contextmanager
def _again(keeper: Keeper, results: list[Any], router: Router) -> Iterator[None]:
    with keeper.again(results), router.recomputing():
        yield
