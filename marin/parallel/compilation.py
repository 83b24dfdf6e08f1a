"""torch.compile for the parts of a block that it helps, on CUDA."""

from __future__ import annotations

import torch

from marin.model.block import Block
from marin.model.transformer import Transformer


def compile_blocks(model: Transformer, device_type: str) -> None:
    """Compile norms, attention, convolutions and shared experts of every block, each by itself.

    Routed experts run as they are: the number of their rows differs from step to step, and the router keeps counts.
    The core of attention brings its own compiled kernel. Raises ValueError off CUDA, where compiled steps were no
    faster and the grouped product does not compile in fp32.
    """
    if device_type != "cuda":
        raise ValueError(f"compute.compile is true on {device_type}; it pays on cuda only, set it to false")
    for block in model.blocks:
        assert isinstance(block, Block)
        attention = block.attention
        attention.attend = torch.compiler.disable(attention.attend, recursive=False)  # type: ignore[no-untyped-call]
        parts = (
            block.attention_norm,
            attention,
            block.attention_convolution,
            block.moe_norm,
            block.shared,
            block.moe_convolution,
        )
        for part in parts:
            if part is not None:
                part.forward = torch.compile(part.forward)  # type: ignore[method-assign]  # a wrapper renames weights
