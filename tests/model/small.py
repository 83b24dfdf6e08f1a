"""A model small enough for the slow reference, with every part of the big one, and packed batches for it."""

from __future__ import annotations

import torch

from marin.model.config import ModelConfig
from marin.model.transformer import Transformer

SMALL = ModelConfig(
    vocab_size=37,
    width=16,
    layers=5,
    heads=4,
    head_dim=8,
    local_kv_heads=2,
    global_kv_heads=1,
    experts=6,
    experts_per_token=2,
    latent_width=8,
    expert_width=12,
    shared_experts=2,
    shared_width=8,
    sequence_length=14,
    window=4,
    gate_rank=4,
)


def packed(batch: int = 2, length: int = 14, vocab: int = 37, seed: int = 0) -> dict[str, torch.Tensor]:
    """Random tokens in documents of random length; the last target of a document is not a real one."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, vocab, (batch, length), generator=generator)
    starts = torch.rand(batch, length, generator=generator) < 0.25
    starts[:, 0] = True
    segments = starts.long().cumsum(1) - 1
    positions = torch.zeros_like(tokens)
    for b in range(batch):
        for t in range(1, length):
            positions[b, t] = 0 if starts[b, t] else positions[b, t - 1] + 1
    targets = torch.randint(0, vocab, (batch, length), generator=generator)
    mask = torch.ones_like(starts)
    mask[:, :-1] = segments[:, :-1] == segments[:, 1:]
    return {
        "tokens_BT": tokens,
        "segments_BT": segments.int(),
        "positions_BT": positions,
        "targets_BT": targets,
        "loss_mask_BT": mask,
    }


def lively(config: ModelConfig = SMALL, dtype: torch.dtype = torch.float64, seed: int = 1) -> Transformer:
    """A model whose gates, taps, gains and biases are not at their neutral starting values."""
    model = Transformer(config).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in list(model.named_parameters()) + list(model.named_buffers()):
            if name.endswith(("gain", ".taps", ".head_gate", ".bias")):
                tensor += 0.3 * torch.randn(tensor.shape, generator=generator, dtype=torch.float64).to(dtype)
            elif tensor.is_floating_point() and name.rsplit(".", 1)[-1] in (
                "weight",
                "gate_up",
                "down",
                "query",
                "key",
            ):
                tensor *= 2
    return model
