"""The feed-forward half of a block: routed latent experts beside the shared ones.

Shape letters: see `marin.model.outputs`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from marin.model.activation import swiglu
from marin.model.config import ComputeConfig, ModelConfig
from marin.model.dispatch import Dispatcher
from marin.model.experts import Experts
from marin.model.normalisation import rms_norm
from marin.model.router import Router


class SharedExperts(nn.Module):
    """Σ_s SwiGLU_s, as one SwiGLU of S·F inner channels. The input rows lie as [all gates; all ups]."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_up = nn.Parameter(torch.empty(2 * inner, width))
        self.down = nn.Parameter(torch.empty(inner, width))

    def forward(self, m_ND: Tensor) -> Tensor:
        """Every token goes through all shared experts."""
        return swiglu(F.linear(m_ND, self.gate_up)) @ self.down


class MixtureOfExperts(nn.Module):
    """Router, latent projection, exchange, experts, and the way back. [N, D] -> [N, D]"""

    def __init__(self, config: ModelConfig, dispatcher: Dispatcher, compute: ComputeConfig) -> None:
        super().__init__()
        self.dispatcher = dispatcher
        self.dropless = dispatcher
        """In evaluation; another one than in training where that one drops tokens."""
        self.eps = config.norm_eps
        self.router = Router(config)
        self.in_latent = config.features.latent_projection
        if self.in_latent:
            self.latent_down = nn.Parameter(torch.empty(config.latent_width, config.width))
            self.latent_gain = nn.Parameter(torch.empty(config.latent_width))
            self.latent_up = nn.Parameter(torch.empty(config.width, config.latent_width))
        self.experts = Experts(config, compute)

    def forward(self, m_ND: Tensor) -> Tensor:
        """Send each token to its experts in latent width and project their weighted sum back."""
        routing = self.router(m_ND)
        z_NL = m_ND
        if self.in_latent:
            z_NL = rms_norm(F.linear(m_ND, self.latent_down), self.latent_gain, eps=self.eps)
        dispatcher = self.dispatcher if self.training else self.dropless
        dispatched = dispatcher.dispatch(z_NL, routing.experts_NK, self.router.experts)
        self.router.count_dropped(dispatched.dropped)
        rows_RL = self.experts(dispatched.rows_RL, dispatched.counts_E, dispatched.exact)
        y_NL = dispatcher.combine(rows_RL, routing.weights_NK, dispatched)
        self.router.set_losses(routing)
        return F.linear(y_NL, self.latent_up) if self.in_latent else y_NL
