"""Verdicts on documents that a test decides by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from marin.data.documents.artifacts import Attributes, Documents
from marin.execution import current_run, step


@dataclass(frozen=True)
class Marks:
    """Ids of the documents that get a reason to go."""

    ids: tuple[str, ...] = ()


@step("test/marked", version="1")
def mark(pages: Sequence[Documents], config: Marks = Marks()) -> Attributes:
    """Attributes with a reason for the documents of these ids."""
    import pyarrow as pa

    from marin.data.documents.attributes import attributes_of, write_attributes
    from marin.data.documents.io import read_shard

    shards = []
    for documents in pages:
        for shard in documents.shards:
            ids = read_shard(documents, shard, columns=("id",)).column("id").to_pylist()
            reasons = ["marked" if one in config.ids else None for one in ids]
            table = pa.table({"id": ids, "reason": pa.array(reasons, pa.string())})
            shards.append(write_attributes(current_run().write, documents, shard, table))
    return attributes_of("marks", shards)
