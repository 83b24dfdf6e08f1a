"""Which documents become tokens, and how. Free of heavy imports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from marin.execution import added, runtime

METADATA_FIGURE = "metadata."


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
class PackingConfig:
    """How documents are packed into sequences.

    Attributes:
        policy: ``"carry_on"``: documents back to back, cut every ``sequence_length`` tokens; a document goes on in
            another sequence, and no token is lost. ``"truncate"``: every sequence begins with a document, and the one
            that reaches its end is cut there; what is cut off is dropped and counted. ``"best_fit"``: documents stay
            whole up to a sequence's length, and are put together so that little is left to fill up.
        sequence_length: places of a sequence. The loader decides for ``carry_on``; the other policies need it here.
    """

    policy: Literal["carry_on", "truncate", "best_fit"] = "carry_on"
    sequence_length: int | None = None

    def __post_init__(self) -> None:
        if self.policy not in ("carry_on", "truncate", "best_fit"):
            raise ValueError(f"tokenize.packing.policy is {self.policy!r}; use 'carry_on', 'truncate' or 'best_fit'")
        if (self.sequence_length is None) != (self.policy == "carry_on"):
            raise ValueError(
                f"tokenize.packing.sequence_length is {self.sequence_length} with policy {self.policy!r}; give the "
                "model's sequence length with 'truncate' and 'best_fit', and leave it out with 'carry_on'"
            )
        if self.sequence_length is not None and self.sequence_length < 2:
            raise ValueError(f"tokenize.packing.sequence_length is {self.sequence_length}; give at least 2")


@dataclass(frozen=True)
class TokenizeConfig:
    """Writing of token shards.

    Attributes:
        packing: how documents are packed into sequences.
        order_by: order of the documents within a shard, from easy to hard: ``"stored"`` leaves them as they come,
            ``"length"`` goes by tokens, ``"density"`` by tokens per byte of text, ``"metadata.NAME"`` by the number
            that the documents' metadata has under this name. A shard is then held in memory while it is made.
        shard_bytes: text that goes into one token shard, in whole document shards. Part of the identity, because the
            order of the stream follows it.
        batch_bytes: text encoded at once; bounds memory.
    """

    shard_bytes: int = 256 * 1024**2
    packing: PackingConfig = PackingConfig()
    order_by: str = "stored"
    batch_bytes: int = runtime(4 * 1024**2)

    def __post_init__(self) -> None:
        metadata = self.order_by.startswith(METADATA_FIGURE) and self.order_by != METADATA_FIGURE
        if self.order_by not in ("stored", "length", "density") and not metadata:
            raise ValueError(
                f"tokenize.order_by is {self.order_by!r}; use 'stored', 'length', 'density' or 'metadata.NAME'"
            )
        for name in ("shard_bytes", "batch_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"tokenize.{name} is {getattr(self, name)}; it must be at least 1")
