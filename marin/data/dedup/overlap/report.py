"""What was found of each evaluation set: figures, one row for each of its items, a page for people."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from marin.data.dedup.overlap.arrays import unpack, unpack_texts
from marin.data.dedup.overlap.evidence import EXAMPLES
from marin.data.dedup.overlap.index import NO_LETTERS, TOO_SHORT, Owners
from marin.data.documents.pages import template
from marin.data.evalsets.overlap import COMMON, FOUND, NOT_FOUND, REPORT, UNCOMPARED, items_file
from marin.execution import Intermediate, current_run

_BINS = 10


class OverlapReport:
    """Figures of all shards. Holds arrays over n-grams and items, nothing of the documents.

    Args:
        owners: the items and their n-grams.
    """

    def __init__(self, owners: Owners) -> None:
        self._owners = owners
        self._items = len(owners.ids)
        self._found = np.zeros(len(owners.lengths), np.bool_)
        self._common = np.zeros(len(owners.lengths), np.bool_)
        self._documents = np.zeros(self._items, np.int64)
        self._most = np.zeros(self._items, np.int64)
        self._best: dict[int, str] = {}
        self._per_set = np.zeros(len(owners.names), np.int64)
        self._examples: dict[str, list[dict[str, Any]]] = {name: [] for name in owners.names}

    def add_common(self, file: Intermediate) -> None:
        """Take in n-grams that are common."""
        self._common[unpack(current_run().load_intermediate(file))["grams"]] = True

    def add_shard(self, file: Intermediate) -> None:
        """Take in the figures of a shard."""
        arrays = unpack(current_run().load_intermediate(file))
        self._found[arrays["grams"]] = True
        self._documents[arrays["items"]] += arrays["documents"]
        self._per_set += arrays["per_set"]
        texts = unpack_texts(arrays)
        count = len(arrays["items"])
        for item, most, document in zip(arrays["items"].tolist(), arrays["most"].tolist(), texts[:count], strict=True):
            # Of documents that have as much of an item the least id counts, whatever the order of shards.
            if (-most, document) < (-int(self._most[item]), self._best.get(item, "")):
                self._most[item] = most
                self._best[item] = document
        for text in texts[count:]:
            example = json.loads(text)
            self._examples[example["set"]].append(example)
        for name, examples in self._examples.items():
            self._examples[name] = sorted(examples, key=_rank)[:EXAMPLES]

    def write(self, training: int, contaminated: int, limit: int) -> None:
        """Write ``report.json``, ``report.html`` and the items of each set."""
        run = current_run()
        owners = self._owners
        gram_of = np.repeat(np.arange(len(owners.lengths)), np.diff(owners.starts))
        grams = owners.gram_counts
        found = np.bincount(owners.items[self._found[gram_of]], minlength=self._items)
        common = np.bincount(owners.items[self._common[gram_of]], minlength=self._items)
        sets: dict[str, Any] = {}
        for number, name in enumerate(owners.names):
            members = np.flatnonzero(owners.sets == number)
            table = self._table(members, grams, found, common)
            with run.write(items_file(name)) as stream:
                pq.write_table(table, stream, compression="zstd")
            own = np.unique(gram_of[owners.sets[owners.items] == number])
            sets[name] = {
                **_summary(table, owners.states[members]),
                "n_grams": len(own),
                "n_grams_found": int(self._found[own].sum()),
                "n_grams_common": int(self._common[own].sum()),
                "documents": int(self._per_set[number]),
                "examples": self._examples[name],
            }
        told = {
            "training_documents": training,
            "contaminated_documents": contaminated,
            "common_n_gram_limit": limit,
            "sets": dict(sorted(sets.items())),
        }
        run.write_json(REPORT, told)
        run.write_bytes("report.html", _page(told).encode())

    def _table(
        self,
        members: NDArray[np.int64],
        grams: NDArray[np.int64],
        found: NDArray[np.int64],
        common: NDArray[np.int64],
    ) -> pa.Table:
        """One row for each item of a set, in the set's order."""
        owners = self._owners
        rows = []
        for item in members.tolist():
            total, documents = int(grams[item]), int(self._documents[item])
            state = FOUND if documents else COMMON if common[item] else NOT_FOUND if total else UNCOMPARED
            rows.append(
                {
                    "id": owners.ids[item],
                    "state": state,
                    "coverage": round(int(found[item]) / total, 4) if documents else 0.0,
                    "n_grams": total,
                    "n_grams_found": int(found[item]) if documents else 0,
                    "n_grams_common": int(common[item]),
                    "documents": documents,
                    "best_document": self._best.get(item),
                    "best_coverage": round(int(self._most[item]) / total, 4) if documents else 0.0,
                }
            )
        return pa.Table.from_pylist(rows, schema=_ITEMS)


_ITEMS = pa.schema(
    [
        ("id", pa.string()),
        ("state", pa.string()),
        ("coverage", pa.float64()),
        ("n_grams", pa.int64()),
        ("n_grams_found", pa.int64()),
        ("n_grams_common", pa.int64()),
        ("documents", pa.int64()),
        ("best_document", pa.string()),
        ("best_coverage", pa.float64()),
    ]
)


def _rank(example: dict[str, Any]) -> tuple[float, str, str]:
    return -example["n_grams_found"] / example["n_grams"], example["item"], example["document"]


def _summary(table: pa.Table, states: NDArray[np.int8]) -> dict[str, Any]:
    """Counts over the items of a set."""
    total = table.num_rows
    coverage = np.array(table.column("coverage"), np.float64)
    found = np.array(table.column("state").to_pylist(), dtype=object) == FOUND
    own = coverage[found]
    bins = np.minimum((own * _BINS).astype(np.int64), _BINS - 1)
    return {
        "items": total,
        "items_too_short": int((states == TOO_SHORT).sum()),
        "items_without_letters": int((states == NO_LETTERS).sum()),
        "items_found": int(found.sum()),
        "items_found_whole": int((own >= 1.0).sum()),
        "items_with_common_n_grams_only": int(
            (np.array(table.column("state").to_pylist(), dtype=object) == COMMON).sum()
        ),
        "share_found": round(int(found.sum()) / total, 4) if total else 0.0,
        "mean_coverage_of_found": round(float(own.mean()), 4) if len(own) else 0.0,
        "found_by_coverage": np.bincount(bins, minlength=_BINS).tolist(),
    }


def _page(told: dict[str, Any]) -> str:
    """HTML of the report that needs nothing beside it. All text of documents is escaped."""
    return template("marin.data.dedup.overlap", "report.html").render(told=told)
