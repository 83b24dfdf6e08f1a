"""Spans of characters beside the documents of a shard.

Imports pyarrow and numpy; import this module inside step bodies only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marin.data.documents.artifacts import Attributes, AttributeShard, Documents, DocumentShard
from marin.data.documents.attributes import read_attributes, write_attributes
from marin.execution import current_run

Span = tuple[int, int]


def write_spans(
    pages: Documents,
    shard: DocumentShard,
    kind: str,
    ids: Sequence[str],
    spans: Sequence[Sequence[Span]],
    more: Mapping[str, pa.Array] | None = None,
) -> AttributeShard:
    """Write the spans of one document shard as attributes.

    Args:
        pages: the artifact that holds the shard.
        shard: the document shard.
        kind: kind of the attributes, and folder of the file.
        ids: the documents' ids, in the shard's order.
        spans: for each document characters [start, end), ascending and disjoint.
        more: further columns.
    """
    integers = pa.list_(pa.int64())
    table = pa.table(
        {
            "id": pa.array(ids, pa.string()),
            "reason": pa.nulls(len(ids), pa.string()),
            "starts": pa.array([[start for start, _ in one] for one in spans], integers),
            "ends": pa.array([[end for _, end in one] for one in spans], integers),
            "cut_characters": pa.array([sum(end - start for start, end in one) for one in spans], pa.int64()),
            **(more or {}),
        }
    )
    return write_attributes(current_run().write, pages, shard, table, stem=kind)


def kept_rows(attributes: Attributes | None, pages: Documents, shard: DocumentShard) -> NDArray[np.bool_] | None:
    """Which documents of a shard have no reason to go; None without attributes."""
    if attributes is None:
        return None
    reasons = read_attributes(attributes, pages, shard, columns=("reason",)).column("reason")
    kept: NDArray[np.bool_] = reasons.is_null().to_numpy(zero_copy_only=False)
    return kept
