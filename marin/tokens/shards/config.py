"""Which documents become tokens, and how. Free of heavy imports."""

from __future__ import annotations

from dataclasses import dataclass

from marin.execution import added, runtime


@dataclass(frozen=True)
class Selection:
    """Documents by split, source, quality bucket and topic; None takes all."""

    split: str = "train"
    source: str | None = None
    quality: int | None = None
    topic: int | None = added(None, since="2026.12")

    def __post_init__(self) -> None:
        if self.split not in ("train", "validation"):
            raise ValueError(f"selection.split is {self.split!r}; use 'train' or 'validation'")

    def __str__(self) -> str:
        parts = [f"split={self.split}"]
        parts += [f"source={self.source}"] if self.source is not None else []
        parts += [f"quality={self.quality}"] if self.quality is not None else []
        parts += [f"topic={self.topic}"] if self.topic is not None else []
        return " ".join(parts)


@dataclass(frozen=True)
class TokenizeConfig:
    """Writing of token shards.

    Attributes:
        shard_bytes: text that goes into one token shard, in whole document shards. Part of the identity, because the
            order of the stream follows it.
        batch_bytes: text encoded at once; bounds memory.
    """

    shard_bytes: int = 256 * 1024**2
    batch_bytes: int = runtime(4 * 1024**2)

    def __post_init__(self) -> None:
        for name in ("shard_bytes", "batch_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"tokenize.{name} is {getattr(self, name)}; it must be at least 1")
