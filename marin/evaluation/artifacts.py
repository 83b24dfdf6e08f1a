"""The result of an evaluation: small typed figures; the records behind them lie in its files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from marin.evaluation.framing import Framing
from marin.execution import Artifact

RESULTS = "results.json"
SAMPLES = "samples"
"""Folder of sample files: samples/<task>/<kind of request>.jsonl and samples/<task>/documents.jsonl."""
PAGE = "report.html"


@dataclass(frozen=True)
class Contamination:
    """Items of a task, or of an evaluation set, that occur in the documents that training text was chosen from.

    Attributes:
        name: name of the evaluation set that they were compared as.
        items: items that were scored; of a set, all.
        found: items that share n-grams with documents.
        clean: items that were looked for and not found. The rest could not be judged: too short, or too common.
        documents: documents that share n-grams with the set.
    """

    name: str
    items: int
    found: int
    clean: int
    documents: int

    @property
    def share(self) -> float:
        """Share of the items that were found."""
        return self.found / self.items if self.items else 0.0


@dataclass(frozen=True)
class Metric:
    """One figure of a task. None stands for what is not known, such as the error of a single sample.

    Attributes:
        clean: the same figure over the items that were looked for in the documents and not found.
    """

    name: str
    filter: str
    value: float | None
    stderr: float | None
    chance: float | None
    higher_is_better: bool | None
    clean: float | None = None


@dataclass(frozen=True)
class TaskResult:
    """Metrics of a task, or of a group of tasks, over `samples` documents; None for what was never compared."""

    name: str
    group: bool
    samples: int
    shots: int
    metrics: tuple[Metric, ...]
    contamination: Contamination | None = None


@dataclass(frozen=True)
class SourceScore:
    """Compression of one source's held-out documents as they are packed for training (end-of-document tokens included).

    bits_per_byte = nats / (ln 2 · bytes); `complete` when every held-out token was read.
    """

    source: str
    bits_per_byte: float
    nats_per_token: float
    tokens: int
    bytes: int
    complete: bool


@dataclass(frozen=True)
class Continuation:
    """What the model wrote after the beginning of a held-out document, and what the document says there."""

    source: str
    document_id: str
    prompt: str
    text: str
    reference: str
    tokens: int
    finish: str


@dataclass(frozen=True)
class RequestCounts:
    """Requests of the lm-eval tasks, and those that did not fit as they were."""

    answers: int
    empty_answers: int
    cut_contexts: int
    windowed_answers: int
    documents: int
    windowed_documents: int
    prompts: int
    cut_prompts: int

    @staticmethod
    def total(parts: Iterable[RequestCounts]) -> RequestCounts:
        """The sum of several counts."""
        rows = list(parts)
        return RequestCounts(
            **{field.name: sum(getattr(row, field.name) for row in rows) for field in fields(RequestCounts)}
        )


@dataclass(frozen=True, kw_only=True)
class EvalReport(Artifact):
    """Figures of one checkpoint.

    Losses are in nats per token; `contamination` is that of every evaluation set that documents were compared with.
    Files: results.json (everything here, with the configuration of each task), report.html, and `samples`: for each
    task the answers to its requests, written before any aggregation, and the metrics of its documents.
    """

    step: int
    tokens: int
    validation_loss: float | None
    unigram_loss: float | None
    bits_per_byte: float | None
    sources: tuple[SourceScore, ...]
    tasks: tuple[TaskResult, ...]
    continuations: tuple[Continuation, ...]
    framing: Framing
    max_length: int
    requests: RequestCounts
    samples: tuple[str, ...]
    contamination: tuple[Contamination, ...] = ()

    def present(self, places: dict[str, str]) -> Any:
        """The tables that end a run's console, also when the result was there already."""
        from marin.evaluation.report import render

        return render(self, {"report": self.url(PAGE), "results": self.url(RESULTS), **places})
