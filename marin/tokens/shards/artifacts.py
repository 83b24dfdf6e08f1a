"""Token shards as an artifact."""

from __future__ import annotations

from dataclasses import dataclass

from marin.execution import Artifact
from marin.tokens.shards.config import PackingConfig, Selection

COUNTS_FILE = "counts.npy"


@dataclass(frozen=True)
class ShardPacking:
    """What the packing plan of a shard comes to.

    Attributes:
        sequences: number of sequences.
        dropped_tokens: tokens that no sequence holds.
        padded_places: places that no token fills.
        plan_bytes: size of the plan's file.
    """

    sequences: int
    dropped_tokens: int
    padded_places: int
    plan_bytes: int


@dataclass(frozen=True)
class TokenShard:
    """One pair of files ``<name>.bin`` and ``<name>.idx``, with ``<name>.documents.parquet`` beside them,
    ``<name>.sums`` (checksums of their blocks), and ``<name>.plan`` where packing needs one.

    Attributes:
        name: prefix of the file names.
        tokens: number of tokens, edge tokens included.
        documents: number of documents.
        text_bytes: UTF-8 bytes of the documents' text.
        packing: the sequences of its packing plan, or None where documents carry on from one into the next.
    """

    name: str
    tokens: int
    documents: int
    text_bytes: int
    packing: ShardPacking | None


@dataclass(frozen=True, kw_only=True)
class TokenShards(Artifact):
    """Documents as token ids, in shards whose order is fixed. May be empty: then there are no shards.

    ``counts.npy`` holds how often each id occurs (int64, ``vocab_size`` entries). A row of
    ``<name>.documents.parquet`` (columns ``id``, ``tokens``, and ``difficulty``: the figure that orders the shard) says
    which document an index of the shard is.

    Attributes:
        selection: which documents these are.
        shards: the files.
        tokens: number of tokens.
        documents: number of documents.
        text_bytes: UTF-8 bytes of the documents' text; what bits per byte are counted over.
        dtype: ``"uint16"`` or ``"int32"``.
        vocab_size: entries of the model's vocabulary; ids are below it.
        bos_id: id that each document begins with, or None.
        eos_id: id that each document ends with, or None.
        pad_id: id to fill up the last sequence with.
        tokenizer_sha256: digest of the tokenizer's file.
        packing: how documents are packed into sequences.
        order_by: by which figure the documents of a shard are ordered, from easy to hard; ``"stored"`` for none.
    """

    selection: Selection
    shards: tuple[TokenShard, ...]
    tokens: int
    documents: int
    text_bytes: int
    dtype: str
    vocab_size: int
    bos_id: int | None
    eos_id: int | None
    pad_id: int
    tokenizer_sha256: str
    packing: PackingConfig
    order_by: str

    def present(self, places: dict[str, str]) -> str:
        """A line for the console, and where things lie."""
        line = f"{self.tokens:,} tokens of {self.documents:,} documents ({self.selection}) in {len(self.shards)} shards"
        return "\n".join([line, *(f"{what}: {where}" for what, where in places.items())])
