"""Duplicate removal over document shards: signals in, verdicts beside the documents out.

Imports pyarrow and numpy; import this module inside step bodies only.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marin.data.dedup.clusters import Candidate, Verdicts, find_components, settle
from marin.data.dedup.config import DedupConfig
from marin.data.documents.artifacts import Attributes, Documents, DocumentShard
from marin.data.documents.attributes import attributes_of, read_attributes, write_attributes
from marin.data.documents.io import iterate_batches
from marin.data.filtering.minhash import shingles
from marin.data.filtering.words import WordTable, plain_hashes_of
from marin.execution import Flow, StepError, current_run

KIND = "duplicates"
EXACT = "duplicate_exact"
FUZZY = "duplicate_fuzzy"


@dataclass(frozen=True)
class _Place:
    """A shard, and the position of its first document among all documents."""

    pages: Documents
    shard: DocumentShard
    start: int


def deduplicate_documents(pages: Sequence[Documents], signals: Sequence[Attributes], config: DedupConfig) -> Attributes:
    """Find duplicates across all pages; the body of the step."""
    if len(pages) != len(signals):
        raise StepError(
            f"deduplicate got {len(pages)} documents and {len(signals)} signals; give the signals of each, in order"
        )
    places: list[_Place] = []
    candidates: list[Candidate] = []
    for documents, attributes in zip(pages, signals, strict=True):
        for shard in documents.shards:
            places.append(_Place(documents, shard, len(candidates)))
            candidates.extend(_candidates(documents, shard, attributes))
    components = find_components(candidates, config)
    grams = _n_grams(places, components.wanted(), config.n_gram)
    verdicts = settle(candidates, components, grams, config)
    return _write(places, candidates, verdicts)


def _candidates(documents: Documents, shard: DocumentShard, signals: Attributes) -> Iterator[Candidate]:
    table = read_attributes(signals, documents, shard, columns=("id", "reason", "content", "bands"))
    columns = table.to_pydict()
    for document_id, reason, content, bands in zip(
        columns["id"], columns["reason"], columns["content"], columns["bands"], strict=True
    ):
        yield Candidate(document_id, shard.source, reason is None, content, bands)


def _n_grams(places: Sequence[_Place], wanted: set[int], size: int) -> dict[int, NDArray[np.uint64]]:
    """Distinct n-gram hashes of the wanted documents' texts. Shards without any are not read."""
    table = WordTable()
    found: dict[int, NDArray[np.uint64]] = {}
    for place in places:
        position = place.start
        if not wanted.intersection(range(position, position + place.shard.rows)):
            continue
        for batch in iterate_batches(place.pages, place.shard, columns=("text",)):
            texts = batch.column("text")
            for text in texts:
                if position in wanted:
                    found[position] = shingles(plain_hashes_of(text.as_py(), table), size)
                position += 1
        current_run().progress(len(found), len(wanted), "compared")
    return found


def _write(places: Sequence[_Place], candidates: Sequence[Candidate], verdicts: Verdicts) -> Attributes:
    run = current_run()
    counts: Counter[str] = Counter()
    pairs: Counter[str] = Counter()
    removed: list[dict[str, Any]] = []
    shards = []
    for place in places:
        rows = [_row(candidates, verdicts, place.start + at) for at in range(place.shard.rows)]
        columns = {
            name: pa.array([row[name] for row in rows], kind)
            for name, kind in (
                ("id", pa.string()),
                ("reason", pa.string()),
                ("duplicate_of", pa.string()),
                ("duplicate_of_source", pa.string()),
                ("containment", pa.float64()),
            )
        }
        shards.append(write_attributes(run.write, place.pages, place.shard, pa.table(columns), stem=KIND))
        for row in rows:
            if row["reason"]:
                counts[row["reason"]] += 1
                pairs[f"{place.shard.source} of {row['duplicate_of_source']}"] += 1
                removed.append({**row, "source": place.shard.source})
    with run.write("removed.jsonl") as stream:
        for row in sorted(removed, key=lambda row: (row["id"], row["duplicate_of"])):
            stream.write(json.dumps(row, ensure_ascii=False, sort_keys=True).encode() + b"\n")
    total = len(candidates)
    run.write_json(
        "report.json",
        {
            "documents": total,
            "kept": total - len(removed),
            "removed": dict(sorted(counts.items())),
            "removed_by_source": dict(sorted(pairs.items())),
            "components": verdicts.components,
            "uncompared": verdicts.uncompared,
        },
    )
    run.account(Flow(unit="documents", read=total, kept=total - len(removed), dropped=dict(sorted(counts.items()))))
    return attributes_of(KIND, shards)


def _row(candidates: Sequence[Candidate], verdicts: Verdicts, position: int) -> dict[str, Any]:
    kept = int(verdicts.kept[position])
    if kept == position:
        return {
            "id": candidates[position].id,
            "reason": None,
            "duplicate_of": None,
            "duplicate_of_source": None,
            "containment": None,
        }
    return {
        "id": candidates[position].id,
        "reason": EXACT if verdicts.exact[position] else FUZZY,
        "duplicate_of": candidates[kept].id,
        "duplicate_of_source": candidates[kept].source,
        "containment": round(float(verdicts.containment[position]), 4),
    }
