"""Steps that make any number of small documents, with what is known of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from marin.data.documents.artifacts import Attributes, Documents
from marin.data.evalsets.artifacts import EvalSet
from marin.execution import current_run, step

CLUSTER = 5
"""Every so many documents in a row are copies of the first of them."""


@dataclass(frozen=True)
class Many:
    """So many shards of so many documents."""

    shards: int
    rows: int


def id_of(number: int) -> str:
    """The id of document number so and so."""
    return hashlib.blake2b(str(number).encode(), digest_size=16).hexdigest()


@step("test/many_pages", version="1")
def many_pages(config: Many) -> Documents:
    """The documents."""
    import pyarrow as pa

    from marin.data.documents.io import DocumentWriter, documents_of

    shards: list[Any] = []
    for shard in range(config.shards):
        numbers = range(shard * config.rows, (shard + 1) * config.rows)
        table = pa.table(
            {
                "id": [id_of(number) for number in numbers],
                "text": [f"This is what document {number} has to say, and it is not much." for number in numbers],
                "text_hash": [id_of(number) for number in numbers],
                "url": [f"http://many.invalid/{number}" for number in numbers],
                "language": pa.nulls(config.rows, pa.string()),
                "metadata": ["{}"] * config.rows,
            }
        )
        with DocumentWriter(current_run().write, f"pages-{shard:03d}", source="many") as writer:
            writer.write_table(table)
        shards += writer.shards
    return documents_of("many", shards)


@step("test/many_known", version="1")
def many_known(pages: Documents, config: Many, kind: str) -> Attributes:
    """What is known of them: every fifth stands in for the four behind it, and each second of these fails."""
    import pyarrow as pa

    from marin.data.documents.attributes import attributes_of, write_attributes

    shards: list[Any] = []
    for number, shard in enumerate(pages.shards):
        numbers = range(number * config.rows, (number + 1) * config.rows)
        firsts = [at - at % CLUSTER for at in numbers]
        fails = [at % (2 * CLUSTER) == 0 for at in numbers]
        columns = {
            "signals": {
                "reason": pa.array(["gopher_few_words" if failed else None for failed in fails], pa.string()),
                "language": ["en"] * config.rows,
                "spoken_words": [12] * config.rows,
            },
            "duplicates": {
                "reason": pa.array(
                    [None if at == first else "duplicate_exact" for at, first in zip(numbers, firsts, strict=True)],
                    pa.string(),
                ),
                "duplicate_of": pa.array(
                    [None if at == first else id_of(first) for at, first in zip(numbers, firsts, strict=True)],
                    pa.string(),
                ),
                "cluster": [id_of(first) for first in firsts],
            },
            "contamination": {"reason": pa.nulls(config.rows, pa.string())},
            "cells": {
                "reason": pa.nulls(config.rows, pa.string()),
                "score": [at % 100 / 100 for at in numbers],
                "quality": pa.array([at % 2 for at in numbers], pa.int16()),
                "topic": pa.array([at % 3 for at in numbers], pa.int16()),
            },
        }[kind]
        table = pa.table({"id": [id_of(at) for at in numbers], **columns})
        shards.append(write_attributes(current_run().write, pages, shard, table, stem=kind))
    return attributes_of(kind, shards)


@step("test/no_evalset", version="1")
def no_evalset() -> EvalSet:
    """An evaluation set that only says which share is held out."""
    return EvalSet(name="none", items=0, choice_items=0, rolling_documents=0, validation_share=0.01, sources=())
