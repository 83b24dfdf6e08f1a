"""One block: attention, then experts, each behind a norm and a short convolution.

Shape letters: see `marin.model.outputs`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from marin.model.attention import Attention
from marin.model.config import ComputeConfig, ModelConfig
from marin.model.convolution import convolution_of
from marin.model.dispatch import Dispatcher
from marin.model.moe import MixtureOfExperts, SharedExperts
from marin.model.normalisation import norm_of
from marin.model.packing import Packing


class Block(nn.Module):
    """x += SConv(Attention(norm(x))); m = norm(x); x += SConv(MoE(m) + Shared(m)). [B, T, D] -> [B, T, D]"""

    def __init__(self, config: ModelConfig, layer: int, dispatcher: Dispatcher, compute: ComputeConfig) -> None:
        super().__init__()
        self.attention_norm = norm_of(config)
        self.attention = Attention(config, layer, compute)
        self.attention_convolution = convolution_of(config, config.width)
        self.moe_norm = norm_of(config)
        self.moe = MixtureOfExperts(config, dispatcher, compute)
        self.shared = (
            SharedExperts(config.width, config.shared_experts * config.shared_width) if config.shared_experts else None
        )
        self.moe_convolution = convolution_of(config, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.beside: Callable[[Callable[[Tensor], Tensor], Tensor], Callable[[], Tensor]] = when_asked
        """How the shared experts run beside the routed ones."""

    def forward(self, x_BTD: Tensor, packing: Packing) -> Tensor:
        """Add the block's two contributions to the stream."""
        y_BTD = self.attention(self.attention_norm(x_BTD), packing)
        x_BTD = x_BTD + self.dropout(self.attention_convolution(y_BTD, packing))
        m_ND = self.moe_norm(x_BTD).flatten(0, 1)
        shared = None if self.shared is None else self.beside(self.shared, m_ND)
        y_ND = self.moe(m_ND)
        if shared is not None:
            y_ND = y_ND + shared()
        x_BTD = x_BTD + self.dropout(self.moe_convolution(y_ND.view_as(x_BTD), packing))
        return x_BTD


def when_asked(function: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], Tensor]:
    """Nothing runs beside anything: `function(x)` is computed when its result is asked for."""
    return partial(function, x)
