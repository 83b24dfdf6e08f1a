"""The attention of one block: grouped queries, local or global, exclusive, gated by head.

Shape letters: see `marin.model.outputs`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from marin.model.attention_backends import attend
from marin.model.config import ComputeConfig, ModelConfig
from marin.model.convolution import convolution_of
from marin.model.heads import finished, rotate
from marin.model.normalisation import rms_norm
from marin.model.packing import Packing


class Attention(nn.Module):
    """Attention of layer `layer` on the normalised stream. [B, T, D] -> [B, T, D]"""

    def __init__(self, config: ModelConfig, layer: int, compute: ComputeConfig) -> None:
        super().__init__()
        self.compute = compute
        self.attend: Callable[..., Tensor] = attend
        self.head_dim = config.head_dim
        self.eps = config.norm_eps
        self.query_scale = config.query_scale
        self.window = None if config.is_global(layer) else config.window
        positions = config.has_positions(layer)
        self.rotary = (config.head_dim, config.rotary_dim, config.rope_theta) if positions else None
        self.exclusive = config.features.exclusive_attention
        self.used_kv_width = config.kv_heads_of(layer) * config.head_dim
        stored = config.kv_heads * config.head_dim
        inner = config.heads * config.head_dim
        self.query = nn.Parameter(torch.empty(inner, config.width))
        self.key = nn.Parameter(torch.empty(stored, config.width))
        self.value = nn.Parameter(torch.empty(stored, config.width))
        self.output = nn.Parameter(torch.empty(config.width, inner))
        gate, gain = config.features.head_gate, config.features.query_key_gain
        self.head_gate = nn.Parameter(torch.empty(config.heads, config.width)) if gate else None
        self.query_gain = nn.Parameter(torch.empty(config.head_dim)) if gain else None
        self.key_gain = nn.Parameter(torch.empty(config.head_dim)) if gain else None
        self.key_convolution = convolution_of(config, stored)

    def forward(self, u_BTD: Tensor, packing: Packing) -> Tensor:
        """Attend inside each packed document."""
        used = self.used_kv_width
        b, t, _ = u_BTD.shape
        q = F.linear(u_BTD, self.query).view(b, t, -1, self.head_dim)
        k = self.key_convolution(F.linear(u_BTD, self.key[:used]), packing, used).view(b, t, -1, self.head_dim)
        v = F.linear(u_BTD, self.value[:used]).view(b, t, -1, self.head_dim)
        q = rms_norm(q, self.query_gain, eps=self.eps, scale=self.query_scale)
        k = rms_norm(k, self.key_gain, eps=self.eps)
        if self.rotary is not None:
            rotation = packing.rotation_BTP(*self.rotary, u_BTD.dtype)
            q, k = rotate(q, rotation), rotate(k, rotation)
        y = self.attend(q, k, v, packing, self.window, self.compute)
        gate_BTH = None if self.head_gate is None else 2 * torch.sigmoid(F.linear(u_BTD, self.head_gate))
        return F.linear(finished(y, v, gate_BTH, exclusive=self.exclusive).flatten(2), self.output)
