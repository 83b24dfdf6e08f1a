"""A slow float64 transformer written from the equations: loops over tokens, heads and experts, no shared code."""

from __future__ import annotations

import math

import torch

from marin.model.config import ModelConfig

Weights = dict[str, torch.Tensor]


def rms(x, gain=None, eps=1e-5):
    y = x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps)
    return y if gain is None else y * gain


def silu(x):
    return x / (1 + torch.exp(-x))


def sigmoid(x):
    return 1 / (1 + torch.exp(-x))


def norm(x, weights: Weights, name: str):
    y = rms(x, weights[f"{name}.gain"])
    if f"{name}.gate_down" not in weights:
        return y
    down, up = weights[f"{name}.gate_down"], weights[f"{name}.gate_up"]
    return y * sigmoid(torch.einsum("dr,...r->...d", up, silu(torch.einsum("rd,...d->...r", down, y))))


def convolve(x, taps, segments):
    """One sequence [T, C]; without taps, as it is."""
    if taps is None:
        return x
    rows = []
    for t in range(len(x)):
        row = torch.zeros_like(x[t])
        for j in range(len(taps)):
            if t - j >= 0 and segments[t - j] == segments[t]:
                row = row + taps[j] * x[t - j]
        rows.append(row)
    return torch.stack(rows)


def rotate(vector, position: int, theta: float, share: float = 0.5):
    half = int(len(vector) * share)
    parts = []
    for j in range(half // 2):
        angle = position * theta ** (-2 * j / half)
        a, b = vector[2 * j], vector[2 * j + 1]
        parts += [a * math.cos(angle) - b * math.sin(angle), a * math.sin(angle) + b * math.cos(angle)]
    return torch.cat((torch.stack(parts), vector[half:])) if parts else vector


def attention(u, weights: Weights, name: str, config: ModelConfig, layer: int, segments, positions):
    """One sequence [T, D]."""
    c, t_count, on = config.head_dim, len(u), config.features
    is_global = (layer + 1) % 4 == 0 or layer == config.layers - 1
    kv = config.global_kv_heads if is_global else config.local_kv_heads
    q_all = u @ weights[f"{name}.query"].T
    k_all = convolve(u @ weights[f"{name}.key"].T, weights.get(f"{name}.key_convolution.taps"), segments)
    v_all = u @ weights[f"{name}.value"].T
    gate = 2 * sigmoid(u @ weights[f"{name}.head_gate"].T) if on.head_gate else torch.ones(t_count, config.heads)
    outputs = []
    for head in range(config.heads):
        shared = head // (config.heads // kv)
        q = config.query_scale * rms(q_all[:, head * c : (head + 1) * c], weights.get(f"{name}.query_gain"))
        k = rms(k_all[:, shared * c : (shared + 1) * c], weights.get(f"{name}.key_gain"))
        v = v_all[:, shared * c : (shared + 1) * c]
        if not is_global or on.global_positions:
            turn = (config.rope_theta, on.rotary_share)
            q = torch.stack([rotate(q[t], int(positions[t]), *turn) for t in range(t_count)])
            k = torch.stack([rotate(k[t], int(positions[t]), *turn) for t in range(t_count)])
        rows = []
        for t in range(t_count):
            keys = [s for s in range(t + 1) if segments[s] == segments[t] and (is_global or t - s < config.window)]
            scores = torch.stack([q[t] @ k[s] / math.sqrt(c) for s in keys])
            shares = torch.exp(scores - scores.max())
            shares = shares / shares.sum()
            y = sum(share * v[s] for share, s in zip(shares, keys, strict=True))
            if on.exclusive_attention:
                y = y - (y @ v[t]) / (v[t] @ v[t] + 1e-6) * v[t]
            rows.append(gate[t, head] * y)
        outputs.append(torch.stack(rows))
    return torch.cat(outputs, dim=1) @ weights[f"{name}.output"].T


def swiglu(x, gate, up, down_inner_first):
    return (silu(gate @ x) * (up @ x)) @ down_inner_first


def mixture(m, weights: Weights, name: str, config: ModelConfig):
    """One sequence [T, D]; the experts' part and, beside it, what the router saw."""
    logits = m @ weights[f"{name}.router.weight"].T
    bias = weights[f"{name}.router.bias"]
    rows, margins = [], []
    for t in range(len(m)):
        ranked = sorted(range(config.experts), key=lambda e: float(-(logits[t, e] + bias[e]).detach()))
        chosen, threshold = ranked[: config.experts_per_token], ranked[config.experts_per_token]
        margins.append(logits[t] - (logits[t, threshold] + bias[threshold]))
        softmax = config.features.combine_weights == "softmax"
        share_of = torch.softmax(logits[t], 0) if softmax else sigmoid(logits[t])
        shares = torch.stack([share_of[e] for e in chosen])
        shares = config.routing_scale * shares / shares.sum()
        latent = config.features.latent_projection
        z = rms(weights[f"{name}.latent_down"] @ m[t], weights[f"{name}.latent_gain"]) if latent else m[t]
        total = torch.zeros_like(z)
        for share, e in zip(shares, chosen, strict=True):
            gate, up = weights[f"{name}.experts.gate_up"][e].chunk(2)
            total = total + share * swiglu(z, gate, up, weights[f"{name}.experts.down"][e])
        rows.append(weights[f"{name}.latent_up"] @ total if latent else total)
    return torch.stack(rows), torch.stack(margins)


def shared_experts(m, weights: Weights, name: str, config: ModelConfig):
    gates, ups = weights[f"{name}.gate_up"].chunk(2)
    f = config.shared_width
    rows = []
    for t in range(len(m)):
        parts = [slice(s * f, (s + 1) * f) for s in range(config.shared_experts)]
        rows.append(sum(swiglu(m[t], gates[p], ups[p], weights[f"{name}.down"][p]) for p in parts))
    return torch.stack(rows)


def logits_of(tokens, segments, positions, weights: Weights, config: ModelConfig):
    """One sequence [T] -> [T, V]."""
    x = weights["embedding.weight"][tokens]
    if config.features.embedding_norm:
        x = norm(x, weights, "embedding_norm")
    for i in range(config.layers):
        block = f"blocks.{i}"
        y = attention(
            norm(x, weights, f"{block}.attention_norm"), weights, f"{block}.attention", config, i, segments, positions
        )
        x = x + convolve(y, weights.get(f"{block}.attention_convolution.taps"), segments)
        m = norm(x, weights, f"{block}.moe_norm")
        routed, _ = mixture(m, weights, f"{block}.moe", config)
        y = routed + shared_experts(m, weights, f"{block}.shared", config) if config.shared_experts else routed
        x = x + convolve(y, weights.get(f"{block}.moe_convolution.taps"), segments)
    return norm(x, weights, "output_norm") @ weights["head.weight"].T


def loss_sums(logits, targets, mask):
    """Sums of cross-entropy and squared log-partition over marked tokens, and their number."""
    nll = z = torch.zeros((), dtype=logits.dtype)
    for row, target, real in zip(logits, targets, mask, strict=True):
        if real:
            partition = torch.log(torch.exp(row - row.max()).sum()) + row.max()
            nll = nll + partition - row[target]
            z = z + partition**2
    return nll, z, int(mask.sum())
