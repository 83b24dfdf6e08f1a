"""What is known of the items of an evaluation set after training text was compared with them."""

from __future__ import annotations

from dataclasses import dataclass

from marin.data.documents.artifacts import Attributes

REPORT = "report.json"
"""Figures by evaluation set, among the files of the overlap."""

NOT_FOUND, FOUND = "not_found", "found"
COMMON = "common"
"""Only n-grams that are common in the training text were found: no evidence, but none of the opposite."""
UNCOMPARED = "uncompared"
"""Too short, or without letters."""


def items_file(name: str) -> str:
    """The file with one row for each item of an evaluation set."""
    return f"items/{name}.parquet"


@dataclass(frozen=True)
class SetOverlap:
    """Items of one evaluation set that occur in training text.

    Attributes:
        name: name of the set.
        items: number of its items.
        documents: documents that have some of them.
        states: for each item by its id, whether it was found.
        coverage: for each found item by its id, the share of its n-grams that was found.
    """

    name: str
    items: int
    documents: int
    states: dict[str, str]
    coverage: dict[str, float]


def read_overlap(overlap: Attributes) -> dict[str, SetOverlap]:
    """What was found of every evaluation set that was compared, by name."""
    import pyarrow.parquet as pq

    found: dict[str, SetOverlap] = {}
    for name, figures in overlap.read_json(REPORT)["sets"].items():
        with overlap.open(items_file(name)) as stream:
            rows = pq.ParquetFile(stream).read(columns=["id", "state", "coverage"]).to_pylist()
        found[name] = SetOverlap(
            name=name,
            items=figures["items"],
            documents=figures["documents"],
            states={row["id"]: row["state"] for row in rows},
            coverage={row["id"]: row["coverage"] for row in rows if row["state"] == FOUND},
        )
    return found
