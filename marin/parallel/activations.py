"""What a rank keeps of a forward pass, and the most that is alive at once, without a machine.

The real model runs forward and backward on the meta device, where tensors have sizes and no memory, at two depths; from
their difference follows any depth. Stand-ins replace what needs values: rows move between ranks in equal shares times
`imbalance`, and attention keeps what its kernel keeps (queries, keys, values, output; on CUDA one number a query, on
the CPU the probabilities).
Shape letters: see `marin.model.outputs`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from marin.model.autograd import apply
from marin.model.block import Block
from marin.model.config import ComputeConfig, ExpertBackend, ModelConfig
from marin.model.convolution import ShortConvolution
from marin.model.dispatch import Dispatched, Order, gather, sort_by_expert, spread
from marin.model.loss import chunk_for
from marin.model.packing import Packing
from marin.model.parameters import is_wide
from marin.model.transformer import Transformer
from marin.parallel.config import ParallelPlan, Recompute
from marin.parallel.live import LiveBytes
from marin.parallel.recompute import apply_recompute


@dataclass(frozen=True)
class Activations:
    """Bytes on one rank for one micro-batch."""

    kept: int
    """After the forward pass."""
    peak: int
    """The most at once in either pass, with the gradients of the two units that are being computed and reduced."""


def activations(
    model: ModelConfig,
    plan: ParallelPlan,
    *,
    sequences: int,
    dtype: torch.dtype,
    recompute: Recompute,
    device_type: str = "cuda",
    compute: ComputeConfig = ComputeConfig(),
    imbalance: float = 1.0,
) -> Activations:
    """Activations of `sequences` sequences a rank, when a rank gets `imbalance` times its even share of rows."""
    if sequences < 1 or imbalance < 1:
        raise ValueError(f"sequences is {sequences} and imbalance {imbalance}; give at least 1 for both")
    run = _Run(model, plan, sequences, dtype, recompute, device_type, compute, imbalance)
    globals_ = sum(model.is_global(layer) for layer in range(model.layers))
    # The last layer is global whatever `every` says: one local and one global, then one more of either kind.
    kept, peak = run.measure(layers=2, every=1000)
    more = (model.layers - globals_ - 1) * (run.measure(layers=3, every=1000)[0] - kept)
    more += (globals_ - 1) * (run.measure(layers=3, every=2)[0] - kept)
    return Activations(kept + more, peak + more)


@dataclass(frozen=True)
class _Run:
    model: ModelConfig
    plan: ParallelPlan
    sequences: int
    dtype: torch.dtype
    recompute: Recompute
    device_type: str
    compute: ComputeConfig
    imbalance: float

    def measure(self, layers: int, every: int) -> tuple[int, int]:
        """(alive after the forward pass, most alive) of a model of so many layers."""
        model = self._build(replace(self.model, layers=layers, global_every=every))
        shape = (self.sequences, self.model.sequence_length)
        with LiveBytes() as live, torch.device("meta"):
            tokens = torch.empty(shape, dtype=torch.int64)
            loss = model(tokens, tokens.int(), tokens, tokens, tokens.bool()).total_sum
            kept = live.now
            torch.autograd.backward(loss)
        return kept, live.peak

    def _build(self, config: ModelConfig) -> Transformer:
        on_cuda = self.device_type == "cuda"
        chunk = chunk_for(self.compute.loss_chunk, self.device_type)
        compute = replace(self.compute, experts=ExpertBackend.LOOP, loss_chunk=chunk)
        moved = _Moved(self.plan.ep, self.imbalance)
        with torch.device("meta"):
            model = Transformer(config, moved, compute).to(self.dtype)
            for block in model.blocks:
                assert isinstance(block, Block)
                for name, parameter in list(block.moe.experts.named_parameters()):
                    here = parameter.detach()[: config.experts // self.plan.ep].clone()
                    block.moe.experts.register_parameter(name, nn.Parameter(here))
                block.attention.attend = _fused if on_cuda else _in_blocks
        for module in model.modules():
            if isinstance(module, ShortConvolution) and not on_cuda:
                module.forward = partial(_one_pass, module)  # type: ignore[method-assign]  # a stand-in
        _widen(model)
        for router in model.routers():
            # Counting needs values, and leaves nothing behind but the routers' own counters.
            router.eval()
        apply_recompute(model, self.recompute, exchanges=self.plan.ep > 1)
        return model


def _widen(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if is_wide(name) and parameter.dtype != torch.float64:
            parameter.data = parameter.data.float()


@dataclass(frozen=True)
class _Moved:
    """A dispatcher that moves nothing: as many rows arrive as `imbalance` says, equally many for each local expert."""

    ranks: int
    imbalance: float

    def dispatch(self, x_NL: Tensor, experts_NK: Tensor, experts: int) -> Dispatched:
        """Rows of this rank's experts."""
        order = sort_by_expert(experts_NK, experts)
        local = experts // self.ranks
        leaving = spread(x_NL, order)
        each = round(leaving.shape[0] * (self.imbalance if self.ranks > 1 else 1) / local)
        counts = torch.full((local,), each, device="cpu")
        if self.ranks == 1:
            counts[-1] += leaving.shape[0] - each * local
            return Dispatched(leaving, counts, order, 0)
        arrived: Tensor = apply(_Travel, leaving, each * local)
        arrival = sort_by_expert(torch.empty(each * local, 1, dtype=torch.int64), local)
        return Dispatched(spread(arrived, arrival), counts, order, 0, arrival)

    def combine(self, rows_RL: Tensor, weights_NK: Tensor, dispatched: Dispatched) -> Tensor:
        """The way back."""
        if self.ranks > 1:
            back: Order = dispatched.exchange
            rows_RL = spread(rows_RL, Order(back.place_NK.squeeze(1), back.token_R.unsqueeze(1), back.counts_E))
            rows_RL = apply(_Travel, rows_RL, weights_NK.numel())
        return gather(rows_RL, weights_NK, dispatched.order)


class _Travel(torch.autograd.Function):
    """Rows that leave, and others that arrive."""

    @staticmethod
    def forward(ctx: Any, x_RL: Tensor, rows: int) -> Tensor:
        ctx.sent = x_RL.shape[0]
        return x_RL.new_empty(rows, x_RL.shape[1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0].new_empty(ctx.sent, grads[0].shape[1]), None


class _Attention(torch.autograd.Function):
    """What the core of attention keeps and makes: a fused kernel one number a query, others every probability."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, kept: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        y = torch.empty_like(q)
        ctx.save_for_backward(q, k, v, y, torch.empty(kept, dtype=dtype))
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        q, k, v, _, _ = ctx.saved_tensors
        return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), None, None


def _fused(q: Tensor, k: Tensor, v: Tensor, packing: Packing, window: int | None, compute: ComputeConfig) -> Tensor:
    y: Tensor = apply(_Attention, q, k, v, tuple(q.shape[:3]), torch.float32)
    return y


def _in_blocks(q: Tensor, k: Tensor, v: Tensor, packing: Packing, window: int | None, compute: ComputeConfig) -> Tensor:
    length, size = q.shape[1], compute.attention_block
    starts = range(0, length, size)
    # Keys of a block of queries when a row is one document; several hide some.
    spans = [min(s + size, length) - (0 if window is None else max(0, s - window + 1)) for s in starts]
    pairs = sum(min(size, length - s) * span for s, span in zip(starts, spans, strict=True))
    # Beside the probabilities, a copy of the output block by block.
    y: Tensor = apply(_Attention, q, k, v, (q.shape[0], q.shape[2], pairs + length * q.shape[3]), q.dtype)
    return y


class _OnePass(torch.autograd.Function):
    """What the convolution keeps and makes on the CPU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, taps: Tensor) -> Tensor:
        ctx.save_for_backward(x, taps)
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        x, taps = ctx.saved_tensors
        return torch.empty_like(x), torch.empty_like(taps)


def _one_pass(convolution: ShortConvolution, x: Tensor, packing: Packing, channels: int | None = None) -> Tensor:
    y: Tensor = apply(_OnePass, x, convolution.taps if channels is None else convolution.taps[:, :channels])
    return y
