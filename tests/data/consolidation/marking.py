"""A step that marks given passages, as the steps do that find repeated ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from marin.data.documents.artifacts import Attributes, Documents
from marin.execution import current_run, step


@dataclass(frozen=True)
class Marked:
    """Passages of one kind, to be marked wherever they stand."""

    kind: str
    passages: tuple[str, ...]
    beyond: bool = False
    """Mark a character behind the end of each text."""


@step("test/marked", version="1")
def mark(pages: Sequence[Documents], config: Marked) -> Attributes:
    """Spans of the passages."""
    import pyarrow as pa

    from marin.data.documents.attributes import attributes_of, write_attributes
    from marin.data.documents.io import iterate_batches

    pattern = re.compile("|".join(map(re.escape, config.passages)))
    shards = []
    for documents in pages:
        for shard in documents.shards:
            rows = []
            for batch in iterate_batches(documents, shard, columns=("id", "text")):
                for document_id, text in zip(*(batch.column(name).to_pylist() for name in ("id", "text")), strict=True):
                    spans = [found.span() for found in pattern.finditer(text)] if config.passages else []
                    spans += [(len(text), len(text) + 1)] if config.beyond else []
                    rows.append(
                        {
                            "id": document_id,
                            "reason": None,
                            "starts": [begin for begin, _ in spans],
                            "ends": [end for _, end in spans],
                            "cut_characters": sum(end - begin for begin, end in spans),
                        }
                    )
            table = pa.Table.from_pylist(
                rows,
                schema=pa.schema(
                    {
                        "id": pa.string(),
                        "reason": pa.string(),
                        "starts": pa.list_(pa.int64()),
                        "ends": pa.list_(pa.int64()),
                        "cut_characters": pa.int64(),
                    }
                ),
            )
            shards.append(write_attributes(current_run().write, documents, shard, table, stem=config.kind))
    return attributes_of(config.kind, shards)
