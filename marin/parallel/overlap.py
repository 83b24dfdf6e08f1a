"""Communication beside computation on CUDA: parameters gathered ahead, shared experts beside the exchange."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from marin.model.autograd import apply
from marin.model.block import Block


def prefetch_blocks(blocks: Sequence[nn.Module], ahead: int) -> None:
    """Let every block start the gathers of the next `ahead` blocks of its pass.

    The exchange makes the host wait inside of every block, so the host cannot run ahead and must ask early.
    """
    units: list[FSDPModule] = []
    for block in blocks:
        assert isinstance(block, FSDPModule)
        units.append(block)
    for i, unit in enumerate(units):
        unit.set_modules_to_forward_prefetch(units[i + 1 : i + 1 + ahead])
        unit.set_modules_to_backward_prefetch(units[max(0, i - ahead) : i][::-1])


def shared_beside_exchange(blocks: Sequence[Block]) -> None:
    """Compute shared experts on a stream of their own, started before the exchange and joined after it."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    for block in blocks:
        block.beside = SideStream(stream)


class SideStream:
    """Runs a function on another stream; what it returns waits for it."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.stream = stream

    def __call__(self, function: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], Tensor]:
        """Start `function(x)`; its result comes from calling what is returned."""
        forked: Tensor = apply(_Fork, x, self.stream)
        with torch.cuda.stream(self.stream):
            started = function(forked)

        def result() -> Tensor:
            joined: Tensor = apply(_Join, started, self.stream)
            return joined

        return result


class _Fork(torch.autograd.Function):
    """Lets the side stream wait for the main one, and in the backward pass the main one for the side stream: every
    gradient of the function, its weights' too, is queued there by then.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, stream: torch.cuda.Stream) -> Tensor:
        ctx.stream = stream
        stream.wait_stream(torch.cuda.current_stream())
        x.record_stream(stream)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        torch.cuda.current_stream().wait_stream(ctx.stream)
        grads[0].record_stream(torch.cuda.current_stream())
        return grads[0], None


class _Join(torch.autograd.Function):
    """Lets the main stream wait for the side stream, and the other way round in the backward pass."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, stream: torch.cuda.Stream) -> Tensor:
        ctx.stream = stream
        torch.cuda.current_stream().wait_stream(stream)
        y.record_stream(torch.cuda.current_stream())
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        ctx.stream.wait_stream(torch.cuda.current_stream())
        grads[0].record_stream(ctx.stream)
        return grads[0], None
