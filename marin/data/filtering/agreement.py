"""The fast judge beside datatrove's filters, document by document.

Imports datatrove; import this module inside step bodies only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from marin.data.documents.artifacts import Documents, DocumentShard
from marin.data.documents.io import iterate_batches
from marin.data.filtering.annotate import word_table
from marin.data.filtering.artifacts import AGREEMENT_FILE, Agreement
from marin.data.filtering.config import LanguageConfig, Rules, SignalConfig
from marin.data.filtering.features import measure_all
from marin.data.filtering.reference import ReferenceJudge
from marin.data.filtering.rules import failed_rules
from marin.execution import Flow, current_run

_EXAMPLES = 20
_ANY_LANGUAGE = LanguageConfig(keep=(), minimum_score=0.0)


@dataclass
class Comparison:
    """Counts of equal and different decisions.

    Attributes:
        documents: documents compared.
        kept: documents that both keep.
        dropped: documents that both drop.
        differences: the reasons of datatrove and of the fast judge, ``"kept"`` for none, and how often they met.
        examples: ids of documents on which the two differ, with both reasons.
    """

    documents: int = 0
    kept: int = 0
    dropped: int = 0
    differences: Counter[tuple[str, str]] = field(default_factory=Counter)
    examples: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def only_fast_keeps(self) -> int:
        """Documents that datatrove alone drops."""
        return sum(count for (_, fast), count in self.differences.items() if fast == "kept")

    @property
    def only_reference_keeps(self) -> int:
        """Documents that the fast judge alone drops."""
        return sum(count for (reference, _), count in self.differences.items() if reference == "kept")

    def add(self, document_id: str, reference: Sequence[str], fast: Sequence[str]) -> None:
        """Count one document with the reasons of both judges."""
        self.documents += 1
        if bool(reference) == bool(fast):
            self.kept += not fast
            self.dropped += bool(fast)
            return
        pair = (reference[0] if reference else "kept", fast[0] if fast else "kept")
        self.differences[pair] += 1
        self.examples.append((document_id, *pair))

    def join(self, other: Comparison) -> None:
        """Add another one's counts."""
        self.documents += other.documents
        self.kept += other.kept
        self.dropped += other.dropped
        self.differences.update(other.differences)
        self.examples.extend(other.examples)

    def to_json(self) -> dict[str, Any]:
        """The counts as they are kept."""
        return {
            "documents": self.documents,
            "both_keep": self.kept,
            "both_drop": self.dropped,
            "only_fast_keeps": self.only_fast_keeps,
            "only_reference_keeps": self.only_reference_keeps,
            "differences": [
                {"reference": reference, "fast": fast, "documents": count}
                for (reference, fast), count in sorted(self.differences.items())
            ],
            "examples": [
                {"id": document_id, "reference": reference, "fast": fast}
                for document_id, reference, fast in sorted(self.examples)[:_EXAMPLES]
            ],
        }


def compare(ids: Sequence[str], texts: Sequence[str], rules: Rules) -> Comparison:
    """Both judges on the same texts, which the reference takes for English."""
    judge = ReferenceJudge(rules)
    found = Comparison()
    for document_id, text, features in zip(ids, texts, measure_all(texts, word_table()), strict=True):
        row = features.columns | {"language": "en", "language_score": 1.0, "url_reason": None}
        found.add(document_id, judge.reasons(text), failed_rules(row, rules, _ANY_LANGUAGE))
    return found


@dataclass(frozen=True)
class _Task:
    """One document shard to compare. Pickles."""

    pages: Documents
    shard: DocumentShard
    config: SignalConfig


def compare_documents(pages: Documents, config: SignalConfig) -> Agreement:
    """Compare the judges on every document; the body of the step."""
    run = current_run()
    total = Comparison()
    for part in run.map(_compare_shard, [_Task(pages, shard, config) for shard in pages.shards]):
        total.join(part)
    run.write_json(AGREEMENT_FILE, total.to_json())
    return Agreement(
        documents=total.documents,
        equal=total.kept + total.dropped,
        only_fast_keeps=total.only_fast_keeps,
        only_reference_keeps=total.only_reference_keeps,
    )


def _compare_shard(task: _Task) -> Comparison:
    run = current_run()
    found = Comparison()
    for batch in iterate_batches(task.pages, task.shard, columns=("id", "text"), batch_rows=256):
        columns = batch.to_pydict()
        texts = [text[: task.config.longest_text] for text in columns["text"]]
        found.join(compare(columns["id"], texts, task.config.rules))
        run.progress(found.documents, task.shard.rows)
    run.account(Flow(unit="documents", read=found.documents, kept=found.documents, dropped={}))
    return found
