"""What routers can add to the loss: the classic balance loss and the router z-loss, one number a token.

The loss of a step is a sum over its real tokens, divided by their number over all micro-batches and ranks. So that this
holds for the routers' part too, whatever a batch is split into, both losses are told by token and summed over the real
ones. The balance loss of a token is E · Σ_e f_e · p_e with its own probabilities p and the load shares f of the
micro-batch that it is in, pooled over all ranks; its mean over tokens is the E · Σ_e f_e · P_e of Switch Transformers
(Fedus et al. 2021). f counts every routed token, padding too, since experts compute it; it has no gradient. Layers add
up. Shape letters: see `marin.model.outputs`.
"""

from __future__ import annotations

import torch
from torch import Tensor


def balance_loss(logits_NE: Tensor, load_E: Tensor) -> Tensor:
    """E · Σ_e f_e · softmax(logits)_e of each token, for load shares f; 1 where load or probabilities are even. [N]"""
    share_E = load_E.to(logits_NE.dtype) / load_E.sum().clamp(min=1)
    return logits_NE.softmax(-1) @ (share_E * load_E.numel())


def z_loss(logits_NE: Tensor) -> Tensor:
    """Squared log-partition of each token's logits. [N]"""
    return torch.logsumexp(logits_NE, dim=-1).square()
