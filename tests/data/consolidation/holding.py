"""Documents whose fate and repeated passages a test decides by itself, consolidated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from marin.data.consolidation.config import Policy
from marin.data.consolidation.steps import consolidate
from marin.data.dedup.spans_config import SpanConfig
from marin.data.dedup.steps import repeated_spans
from marin.data.documents.artifacts import Attributes, Documents
from marin.data.documents.io import iterate_documents
from marin.data.documents.schema import FATES
from marin.data.evalsets.artifacts import EvalSet
from marin.execution import current_run, materialise, step
from tests.data.consolidation.many import id_of
from tests.data.pages import Page, PageSet, spread, write_pages


@dataclass(frozen=True)
class Passage:
    """Characters of a text, and where they stay, as ``id:start-end``."""

    start: int
    end: int
    stays_in: str


@dataclass(frozen=True)
class Doc:
    """A document: why it fails the filters, whether it is contaminated, and the passages to cut from it."""

    id: str
    text: str
    reason: str | None = None
    contaminated: bool = False
    passages: tuple[Passage, ...] = ()


@dataclass(frozen=True)
class Docs:
    """All documents."""

    docs: tuple[Doc, ...]


@step("test/held_known", version="1")
def held_known(pages: Documents, config: Docs, kind: str) -> Attributes:
    """What is known of them."""
    import pyarrow as pa

    from marin.data.documents.attributes import attributes_of, write_attributes
    from marin.data.documents.io import read_shard

    by_id = {doc.id: doc for doc in config.docs}
    shards = []
    for shard in pages.shards:
        docs = [by_id[one] for one in read_shard(pages, shard, columns=("id",)).column("id").to_pylist()]
        integers, texts = pa.list_(pa.int64()), pa.list_(pa.string())
        none = pa.nulls(len(docs), pa.string())
        columns = {
            "signals": {
                "reason": pa.array([doc.reason for doc in docs], pa.string()),
                "language": ["en"] * len(docs),
                "spoken_words": [len(doc.text.split()) for doc in docs],
            },
            "duplicates": {"reason": none, "duplicate_of": none, "cluster": none},
            "contamination": {"reason": pa.array(["overlap" if doc.contaminated else None for doc in docs])},
            "cells": {
                "reason": none,
                "score": [0.5] * len(docs),
                "quality": pa.array([0] * len(docs), pa.int16()),
                "topic": pa.array([0] * len(docs), pa.int16()),
            },
            "spans": {
                "reason": none,
                "starts": pa.array([[one.start for one in doc.passages] for doc in docs], integers),
                "ends": pa.array([[one.end for one in doc.passages] for doc in docs], integers),
                "originals": pa.array([[one.stays_in for one in doc.passages] for doc in docs], texts),
            },
        }[kind]
        table = pa.table({"id": [doc.id for doc in docs], **columns})
        shards.append(write_attributes(current_run().write, pages, shard, table, stem=kind))
    return attributes_of(kind, shards)


@step("test/held_evalset", version="1")
def held_evalset(share: float) -> EvalSet:
    """An evaluation set that only says which share is held out."""
    return EvalSet(name="none", items=0, choice_items=0, rolling_documents=0, validation_share=share, sources=())


def consolidated(
    prefix: Path,
    docs: Sequence[Doc],
    policy: Policy = Policy(),
    *,
    shards: int = 1,
    share: float = 0.0,
    spans: SpanConfig | None = None,
) -> Documents:
    """The documents that stay. With ``spans`` the passages are found by the step; else they are those of the test."""
    pages = write_pages(PageSet("web", spread([Page(doc.text, f"http://w/{doc.id}", doc.id) for doc in docs], shards)))
    config = Docs(tuple(docs))
    signals, duplicates, contamination, cells, marked = (
        held_known(pages, config, kind) for kind in ("signals", "duplicates", "contamination", "cells", "spans")
    )
    cuts = [marked if spans is None else repeated_spans([pages], duplicates, spans)]
    clean = consolidate([pages], [signals], duplicates, contamination, held_evalset(share), cells, cuts, policy)
    return materialise(clean, prefix=str(prefix))


def texts(clean: Documents) -> dict[str, str]:
    """What is left of each document that stays, by id."""
    return {document.id: document.text for document in iterate_documents(clean)}


def fates(clean: Documents) -> dict[str, dict[str, Any]]:
    """What became of each document, by id."""
    found = [row for name in clean.names(f"{FATES}*") for row in pq.read_table(clean.open(name)).to_pylist()]
    return {row["id"]: row for row in found}


def ids(count: int) -> list[str]:
    """So many ids in order."""
    return sorted(id_of(number) for number in range(count))
