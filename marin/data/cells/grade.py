"""Grading: score, bucket and topic of every document, in one pass over its text.

Imports numpy and pyarrow; import this module inside step bodies only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from marin.data.cells.artifacts import QualityModel, TopicModel
from marin.data.cells.classifier import buckets_of, load_quality, probability
from marin.data.cells.config import SIGNAL_COLUMNS
from marin.data.cells.ngrams import hashed_counts
from marin.data.cells.topics import load_topics
from marin.data.documents.artifacts import Attributes, AttributeShard, Documents, DocumentShard
from marin.data.documents.attributes import attributes_of, read_attributes, write_attributes
from marin.data.documents.io import iterate_batches
from marin.execution import Flow, StepError, current_run

KIND = "cells"

_BATCH_ROWS = 256

CELL_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("score", pa.float64()),
        pa.field("quality", pa.int16()),
        pa.field("topic", pa.int16()),
        pa.field("similarity", pa.float64()),
    ]
)
"""``score`` is the probability to be of the positive set, ``quality`` its bucket, ``similarity`` the cosine between the
document and the centre of its ``topic``. ``reason`` is always null: grades drop nothing."""


@dataclass(frozen=True)
class _Task:
    """One shard of pages to grade. Pickles."""

    pages: Documents
    shard: DocumentShard
    signals: Attributes
    quality: QualityModel
    topics: TopicModel


def grade_documents(
    pages: Sequence[Documents], signals: Sequence[Attributes], quality: QualityModel, topics: TopicModel
) -> Attributes:
    """Grade every shard; the body of the step."""
    if len(pages) != len(signals):
        raise StepError(
            f"grade got {len(pages)} documents and {len(signals)} signals; give the signals of each, in order"
        )
    if quality.characters != topics.characters:
        raise StepError(
            f"the classifier looks at {quality.characters} characters and the topics at {topics.characters}; learn "
            "both from one sample"
        )
    tasks = [
        _Task(documents, shard, attributes, quality, topics)
        for documents, attributes in zip(pages, signals, strict=True)
        for shard in documents.shards
    ]
    return attributes_of(KIND, current_run().map(_grade_shard, tasks))


def _grade_shard(task: _Task) -> AttributeShard:
    run = current_run()
    linear, vectors = load_quality(task.quality), load_topics(task.topics)
    judged = read_attributes(task.signals, task.pages, task.shard, columns=("id", *SIGNAL_COLUMNS))
    signals = np.stack([np.array(judged.column(name).to_pylist(), np.float64) for name in SIGNAL_COLUMNS], axis=1)
    parts: list[pa.RecordBatch] = []
    start = 0
    for batch in iterate_batches(task.pages, task.shard, columns=("text",), batch_rows=_BATCH_ROWS):
        texts = [text.as_py()[: task.quality.characters] for text in batch.column("text")]
        counts = hashed_counts(texts)
        end = start + len(texts)
        odds = linear.log_odds(counts, signals[start:end])
        topics, similarity = vectors.assign(counts)
        columns = {
            "id": judged.column("id").slice(start, len(texts)).combine_chunks(),
            "reason": pa.nulls(len(texts), pa.string()),
            "score": probability(odds),
            "quality": buckets_of(odds, topics, task.quality.edges).astype(np.int16),
            "topic": topics.astype(np.int16),
            "similarity": similarity,
        }
        parts.append(pa.RecordBatch.from_pydict(columns, schema=CELL_SCHEMA))
        start = end
        run.progress(start, task.shard.rows)
    table = pa.Table.from_batches(parts, schema=CELL_SCHEMA)
    run.account(Flow("documents", read=task.shard.rows, kept=table.num_rows, dropped={}))
    return write_attributes(run.write, task.pages, task.shard, table, stem=KIND)
