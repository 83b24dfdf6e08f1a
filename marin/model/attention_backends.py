"""Softmax attention inside packed documents, causal, optionally in a sliding window; three ways, equal numbers.

All take q [B, T, H, C], k and v [B, T, G, C] (query head h reads key-value head h // (H / G)) and return [B, T, H, C].
The softmax scale 1/√C is theirs. Shape letters: see `marin.model.outputs`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from marin.model.autograd import apply
from marin.model.config import AttentionBackend, ComputeConfig
from marin.model.packing import Packing

logger = logging.getLogger(__name__)


def attend(q: Tensor, k: Tensor, v: Tensor, packing: Packing, window: int | None, compute: ComputeConfig) -> Tensor:
    """Attention by the back end that `compute` names or, for auto, that suits the device."""
    backend = choose_attention(compute.attention, q.device.type)
    if backend is AttentionBackend.FLEX:
        return flex_attention(q, k, v, packing, window)
    if backend is AttentionBackend.SDPA:
        return sdpa_attention(q, k, v, packing, window)
    return block_attention(q, k, v, packing, window, compute.attention_block)


@cache
def choose_attention(wanted: AttentionBackend, device: str) -> AttentionBackend:
    """The back end to use on `device`; logs its reason once."""
    if wanted is AttentionBackend.AUTO:
        chosen = AttentionBackend.FLEX if device == "cuda" else AttentionBackend.BLOCKS
        logger.info("attention on %s: %s (chosen by device)", device, chosen.value)
        return chosen
    if wanted is AttentionBackend.FLEX and device != "cuda":
        raise ValueError(
            f"compute.attention is flex on {device}; flex attention trains on cuda only, take blocks or sdpa"
        )
    logger.info("attention on %s: %s (as configured)", device, wanted.value)
    return wanted


def sdpa_attention(q: Tensor, k: Tensor, v: Tensor, packing: Packing, window: int | None) -> Tensor:
    """torch's scaled_dot_product_attention with one boolean mask."""
    mask = packing.visible_BTT(window).unsqueeze(1)
    y = F.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask, enable_gqa=q.shape[2] != k.shape[2]
    )
    return y.transpose(1, 2)


def block_attention(q: Tensor, k: Tensor, v: Tensor, packing: Packing, window: int | None, size: int) -> Tensor:
    """Batched matrix products over blocks of queries, each with only the keys that the block can see."""
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    blocks = packing.query_blocks(window, size, wide)
    y: Tensor = apply(_BlockAttention, q, k, v, blocks)
    return y


def _heads_first(x: Tensor) -> Tensor:
    """[B, T, G, C] -> [B·G, T, C], contiguous."""
    b, t, g, c = x.shape
    return x.transpose(1, 2).reshape(b * g, t, c)


class _BlockAttention(torch.autograd.Function):
    """Keeps the probabilities of every block; works in place on the scores, so it touches them few times."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, blocks: Any) -> Tensor:
        b, t, h, c = q.shape
        g = k.shape[2]
        r = h // g
        keys, values = _heads_first(k), _heads_first(v)
        queries = q.reshape(b, t, g, r, c).permute(0, 2, 3, 1, 4)
        scale, unread = 1.0 / math.sqrt(c), q.new_empty(())
        y = torch.empty_like(q, memory_format=torch.contiguous_format)
        y_GRTC = y.view(b, t, g, r, c).permute(0, 2, 3, 1, 4)
        saved = []
        for block in blocks:
            n, m = block.stop - block.start, block.stop - block.first
            query = queries[:, :, :, block.start : block.stop].reshape(b * g, r * n, c)
            key = keys[:, block.first : block.stop]
            scores = torch.baddbmm(unread, query, key.transpose(1, 2), beta=0, alpha=scale)
            wide = scores.view(b, g * r, n, m).to(block.bias_B1QK.dtype)
            wide[..., block.masked - block.first :].add_(block.bias_B1QK)
            weights = wide.softmax(-1).to(q.dtype).view(b * g, r * n, m)
            out = torch.bmm(weights, values[:, block.first : block.stop])
            y_GRTC[:, :, :, block.start : block.stop] = out.view(b, g, r, n, c)
            saved += [query, weights, out]
        ctx.save_for_backward(keys, values, *saved)
        ctx.blocks, ctx.scale = blocks, scale
        ctx.shape = (b, t, h, c, g, r)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        keys, values, *saved = ctx.saved_tensors
        b, t, h, c, g, r = ctx.shape
        grad_y = grads[0].reshape(b, t, g, r, c).permute(0, 2, 3, 1, 4)
        grad_q, unread = torch.empty(b, t, g, r, c, dtype=keys.dtype, device=keys.device), keys.new_empty(())
        grad_q_GRTC = grad_q.permute(0, 2, 3, 1, 4)
        grad_k, grad_v = torch.zeros_like(keys), torch.zeros_like(values)
        for i, block in enumerate(ctx.blocks):
            query, weights, out = saved[3 * i : 3 * i + 3]
            n = block.stop - block.start
            seen = slice(block.first, block.stop)
            grad_out = grad_y[:, :, :, block.start : block.stop].reshape(b * g, r * n, c)
            grad_v[:, seen].baddbmm_(weights.transpose(1, 2), grad_out)
            along = torch.linalg.vecdot(grad_out, out).unsqueeze(-1)
            grad_scores = torch.bmm(grad_out, values[:, seen].transpose(1, 2)).sub_(along).mul_(weights)
            grad_query = torch.baddbmm(unread, grad_scores, keys[:, seen], beta=0, alpha=ctx.scale)
            grad_q_GRTC[:, :, :, block.start : block.stop] = grad_query.view(b, g, r, n, c)
            grad_k[:, seen].baddbmm_(grad_scores.transpose(1, 2), query, alpha=ctx.scale)
        return (
            grad_q.view(b, t, h, c),
            grad_k.view(b, g, t, c).transpose(1, 2),
            grad_v.view(b, g, t, c).transpose(1, 2),
            None,
        )


@cache
def _compiled_flex() -> Callable[..., Tensor]:
    from torch.nn.attention.flex_attention import flex_attention as flex

    compiled: Callable[..., Tensor] = torch.compile(flex, dynamic=False)
    return compiled


def flex_attention(q: Tensor, k: Tensor, v: Tensor, packing: Packing, window: int | None) -> Tensor:
    """Compiled flex attention; blocks that the mask hides are skipped by the kernel."""
    y = _compiled_flex()(
        q.transpose(1, 2),
        k.transpose(1, 2),
        v.transpose(1, 2),
        block_mask=packing.block_mask(window),
        enable_gqa=q.shape[2] != k.shape[2],
    )
    return y.transpose(1, 2)
