"""Short causal depthwise convolution that stops at document borders."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from marin.model.autograd import apply
from marin.model.config import ModelConfig
from marin.model.packing import Packing


def shifted_sum(x_BTC: Tensor, taps_JC: Tensor, packing: Packing) -> Tensor:
    """y_t = Σ_j taps_j ⊙ x_{t-j} over the taps j whose token t - j lies in the document of t. [B, T, C] -> [B, T, C]"""
    y = x_BTC * taps_JC[0]
    for j in range(1, min(taps_JC.shape[0], x_BTC.shape[1])):
        same = packing.same_document_BT(j).unsqueeze(-1)
        past = torch.where(same, x_BTC[:, :-j], x_BTC.new_zeros(()))
        y = y + nn.functional.pad(past * taps_JC[j], (0, 0, j, 0))
    return y


class _ShiftedSum(torch.autograd.Function):
    """The same on CPU in one pass a tap: tokens whose taps cross a border are few, and are made again one by one.

    Made again, not corrected by subtraction: a value of another document must not leave even its rounding behind.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, taps: Tensor, packing: Packing) -> Tensor:
        ctx.save_for_backward(x, taps)
        ctx.packing = packing
        y = x * taps[0]
        count = min(taps.shape[0], x.shape[1])
        for j in range(1, count):
            y[:, j:].addcmul_(x[:, :-j], taps[j])
        if count > 1:
            rows, columns = packing.crossings_within(count)
            y[rows, columns] = _rows_again(x, taps, packing, rows, columns, count)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        x, taps = ctx.saved_tensors
        packing: Packing = ctx.packing
        grad = grads[0].contiguous()
        count = min(taps.shape[0], x.shape[1])
        grad_x = grad * taps[0]
        grad_taps = torch.zeros_like(taps)
        grad_taps[0] = (grad * x).flatten(0, 1).sum(0)
        for j in range(1, count):
            rows, columns = packing.crossings(j)
            received = grad[:, j:]
            if rows.numel():
                received = received.clone()
                received[rows, columns - j] = 0
            grad_x[:, :-j].addcmul_(received, taps[j])
            grad_taps[j] = (received * x[:, :-j]).flatten(0, 1).sum(0)
        return grad_x, grad_taps, None


def _rows_again(x: Tensor, taps: Tensor, packing: Packing, rows: Tensor, columns: Tensor, count: int) -> Tensor:
    segments = packing.segments_BT
    own = segments[rows, columns]
    y = x[rows, columns] * taps[0]
    for j in range(1, count):
        past = (columns - j).clamp(min=0)
        inside = (columns >= j) & (segments[rows, past] == own)
        y += torch.where(inside.unsqueeze(-1), x[rows, past] * taps[j], y.new_zeros(()))
    return y


class ShortConvolution(nn.Module):
    """Depthwise causal convolution over positions, identity at initialisation. [B, T, C] -> [B, T, C]"""

    def __init__(self, channels: int, taps: int) -> None:
        super().__init__()
        self.taps = nn.Parameter(torch.empty(taps, channels))

    def forward(self, x_BTC: Tensor, packing: Packing, channels: int | None = None) -> Tensor:
        """Convolve; with `channels`, only the first ones are stored in `x_BTC`."""
        taps = self.taps if channels is None else self.taps[:, :channels]
        if x_BTC.device.type == "cpu":
            y: Tensor = apply(_ShiftedSum, x_BTC, taps, packing)
            return y
        return shifted_sum(x_BTC, taps, packing)


class NoConvolution(nn.Module):
    """Stands where a model without short convolutions has none."""

    def forward(self, x_BTC: Tensor, packing: Packing, channels: int | None = None) -> Tensor:
        """`x_BTC` as it is."""
        return x_BTC


def convolution_of(config: ModelConfig, channels: int) -> ShortConvolution | NoConvolution:
    """A convolution over `channels`."""
    return ShortConvolution(channels, config.conv_taps) if config.features.short_convolution else NoConvolution()
