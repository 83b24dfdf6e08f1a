"""The artifact of an evaluation set."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from marin.execution import Artifact

CHOICE_FILE = "choice.jsonl"
ROLLING_FILE = "rolling.jsonl"
ITEMS_FILE = "items.jsonl"


@dataclass(frozen=True, kw_only=True)
class EvalSet(Artifact):
    """Items of an evaluation set, as JSON lines.

    Files: ``items.jsonl`` (id, text, and where an item has several texts its parts in order, what it asks first), all
    that training text must not hold. A set from held-out documents also has
    ``choice.jsonl`` (id, source, context, choices, answer, document_id), where ``answer`` is the number of the true
    continuation, and ``rolling.jsonl`` (id, source, text, document_id).

    Attributes:
        name: name of the set.
        items: number of lines of ``items.jsonl``.
        choice_items: number of multiple-choice items.
        rolling_documents: number of perplexity documents.
        validation_share: share of all documents that the set holds out; 0 for a set that comes from files.
        sources: sources of the items.
    """

    name: str
    items: int
    choice_items: int
    rolling_documents: int
    validation_share: float
    sources: tuple[str, ...]

    def lines(self, file: str) -> Iterator[dict[str, Any]]:
        """The objects of one of the set's files."""
        with self.open(file) as stream:
            for line in stream:
                yield json.loads(line)
