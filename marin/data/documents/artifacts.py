"""Artifacts of documents and of the attribute files that lie beside them."""

from __future__ import annotations

from dataclasses import dataclass

from marin.execution import Artifact


@dataclass(frozen=True)
class DocumentShard:
    """One parquet file of documents.

    Attributes:
        name: file name within the artifact.
        rows: number of documents, at least 1.
        text_bytes: UTF-8 bytes of all texts.
        split: ``"train"`` or ``"validation"`` after consolidation, ``""`` before.
        source: source of all documents in the shard.
        quality: quality bucket of all documents in the shard after consolidation, -1 before.
        topic: topic of all documents in the shard after consolidation, -1 before.
    """

    name: str
    rows: int
    text_bytes: int
    split: str
    source: str
    quality: int
    topic: int = -1


@dataclass(frozen=True, kw_only=True)
class Documents(Artifact):
    """Documents in parquet shards. Without documents there are no shards.

    Attributes:
        source: the one source, or None for several.
        shards: the files, in a fixed order.
        rows: number of documents in all shards.
        text_bytes: UTF-8 bytes of text in all shards.
    """

    source: str | None
    shards: tuple[DocumentShard, ...]
    rows: int
    text_bytes: int

    @classmethod
    def describe(cls, files: Artifact) -> Documents:
        """The documents in parquet files that no step of ours wrote, for `marin adopt`; reads every text.

        Raises:
            StepError: a file is none of documents, naming it and the column.
        """
        from marin.data.documents.description import describe_documents

        return describe_documents(files)

    def select(
        self,
        *,
        split: str | None = None,
        source: str | None = None,
        quality: int | None = None,
        topic: int | None = None,
    ) -> tuple[DocumentShard, ...]:
        """The shards of one split, source, quality bucket and topic; None takes all."""
        return tuple(
            shard
            for shard in self.shards
            if (split is None or shard.split == split)
            and (source is None or shard.source == source)
            and (quality is None or shard.quality == quality)
            and (topic is None or shard.topic == topic)
        )


@dataclass(frozen=True)
class AttributeShard:
    """Attributes of the documents of one shard: the same rows in the same order.

    Attributes:
        name: file name within the Attributes artifact.
        document_shard: name of the document shard.
        rows: number of rows, equal to that of the document shard.
        documents: identity of the Documents artifact that holds the document shard (shard names of two artifacts may
            be equal).
    """

    name: str
    document_shard: str
    rows: int
    documents: str


@dataclass(frozen=True, kw_only=True)
class Attributes(Artifact):
    """Columns beside documents: one parquet file (id, flat columns, reason) for each document shard.

    Attributes:
        kind: what the columns mean, such as ``"signals"`` or ``"duplicates"``.
        shards: one for each shard of each Documents artifact that was annotated.
        rows: number of rows in all shards.
    """

    kind: str
    shards: tuple[AttributeShard, ...]
    rows: int

    def shard_of(self, documents: Documents, shard: DocumentShard) -> AttributeShard:
        """The attribute shard of a document shard.

        Raises:
            KeyError: the shard was never annotated.
        """
        for candidate in self.shards:
            if candidate.document_shard == shard.name and candidate.documents == documents.identity:
                return candidate
        raise KeyError(f"{self.kind} has no attributes for shard {shard.name!r} of documents {documents.identity[:10]}")
