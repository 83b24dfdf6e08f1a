"""How a model is exported."""

from __future__ import annotations

from dataclasses import dataclass

from marin.model.hugging_face.naming import Precision


@dataclass(frozen=True)
class ExportConfig:
    """Precision and size of the exported files."""

    precision: Precision = Precision.STORED
    shard_bytes: int = 5_000_000_000
    """Most bytes of tensors in one safetensors file; a larger tensor gets a file of its own."""

    def __post_init__(self) -> None:
        if self.shard_bytes < 1:
            raise ValueError(f"export.shard_bytes is {self.shard_bytes}; give the bytes of a file, usually 5000000000")
