"""Token shards as an artifact."""

from __future__ import annotations

from dataclasses import dataclass

from marin.execution import Artifact
from marin.tokens.shards.config import Selection

COUNTS_FILE = "counts.npy"


@dataclass(frozen=True)
class TokenShard:
    """One pair of files ``<name>.bin`` and ``<name>.idx``, with ``<name>.documents.parquet`` beside them.

    Attributes:
        name: prefix of the file names.
        tokens: number of tokens, edge tokens included.
        documents: number of documents.
        text_bytes: UTF-8 bytes of the documents' text.
    """

    name: str
    tokens: int
    documents: int
    text_bytes: int


@dataclass(frozen=True, kw_only=True)
class TokenShards(Artifact):
    """Documents as token ids, in shards whose order is fixed. May be empty: then there are no shards.

    ``counts.npy`` holds how often each id occurs (int64, ``vocab_size`` entries). A row of
    ``<name>.documents.parquet`` (columns ``id`` and ``tokens``) says which document an index of the shard is.

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

    def present(self, places: dict[str, str]) -> str:
        """A line for the console, and where things lie."""
        line = f"{self.tokens:,} tokens of {self.documents:,} documents ({self.selection}) in {len(self.shards)} shards"
        return "\n".join([line, *(f"{what}: {where}" for what, where in places.items())])
