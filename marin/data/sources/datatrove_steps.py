"""Running datatrove's pipeline steps inside a step of ours.

Declare a step that fans out, and hand its documents through any datatrove steps that take and give documents::

    def repetition_filter() -> list[PipelineStep]:
        from datatrove.pipeline.filters import GopherRepetitionFilter

        return [GopherRepetitionFilter()]

    @step("documents/unrepetitive", version="1", fans_out=True)
    def drop_repetition(pages: Documents) -> Documents:
        from marin.data.sources.datatrove_steps import through_datatrove

        return through_datatrove(pages, repetition_filter)

Every document is accounted for: what a step drops is counted under the reasons of its statistics. datatrove's executor,
readers and writers are not used; inputs, outputs and resumption are ours.

Imports pyarrow and datatrove; import this module inside step bodies only.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from datatrove.data import Document as TroveDocument
from datatrove.pipeline.base import PipelineStep

from marin.data.documents.artifacts import Documents, DocumentShard
from marin.data.documents.io import DocumentWriter, documents_of, iterate_documents
from marin.data.documents.normalise import normalise_text
from marin.data.documents.schema import Document, encode_metadata, make_document, text_hash
from marin.execution import Flow, StepError, current_run

MakeSteps = Callable[[], Sequence[PipelineStep]]
"""Makes the datatrove steps: a function of a module, or `functools.partial` of one, so that workers can call it."""

_DROPPED = "dropped_"
_OURS = ("url", "source", "language")
"""Metadata keys under which datatrove's steps find what we keep in columns."""


@dataclass(frozen=True)
class _Task:
    """One shard to pass through the steps. Pickles."""

    pages: Documents
    shard: DocumentShard
    number: int
    shards: int
    make_steps: MakeSteps


@dataclass(frozen=True)
class _Passed:
    """What one shard came back with."""

    shards: tuple[DocumentShard, ...]
    statistics: dict[str, dict[str, float]]


def through_datatrove(pages: Documents, make_steps: MakeSteps) -> Documents:
    """Pass every shard through fresh datatrove steps; to be called in the body of a step that fans out.

    A document keeps its id when a step changes its text. A document with a new id, as splitters make them, gets an id
    of ours. ``datatrove.json`` has the statistics of every step.

    Args:
        pages: the documents.
        make_steps: makes the steps, once for each shard. A step is told the number of the shard as its rank.

    Raises:
        StepError: a step raised, or gave a document without an id or text.
    """
    run = current_run()
    tasks = [_Task(pages, shard, number, len(pages.shards), make_steps) for number, shard in enumerate(pages.shards)]
    passed = run.map(_pass_shard, tasks)
    statistics: dict[str, Counter[str]] = {}
    for one in passed:
        for name, counts in one.statistics.items():
            statistics.setdefault(name, Counter()).update(counts)
    run.write_json("datatrove.json", {name: dict(sorted(counts.items())) for name, counts in statistics.items()})
    return documents_of(pages.source, (shard for one in passed for shard in one.shards))


def _pass_shard(task: _Task) -> _Passed:
    run = current_run()
    steps = list(task.make_steps())
    counters = [_Counted() for _ in range(len(steps) + 1)]
    originals: dict[str, Document] = {}
    stream: Iterable[TroveDocument] = counters[0].count(_read(task, originals))
    for step, counter in zip(steps, counters[1:], strict=True):
        stream = counter.count(step.run(stream, rank=task.number, world_size=task.shards))
    made = kept = 0
    with DocumentWriter(run.write, f"pages-{task.number:05d}", source=task.shard.source) as writer:
        for document in stream:
            original = originals.get(document.id)
            writer.write(_back(document, original, task.shard.source))
            made += original is None
            kept += 1
            run.progress(counters[0].passed, task.shard.rows)
    if counters[0].passed != task.shard.rows:
        raise StepError(
            f"the datatrove steps read {counters[0].passed} of the {task.shard.rows} documents of {task.shard.name!r}; "
            "only steps that read all they are given can be used"
        )
    dropped: Counter[str] = Counter()
    for number, step in enumerate(steps):
        dropped.update(drop_reasons(step, counters[number].passed, counters[number + 1].passed))
    # What steps make beyond what they were given counts as read, or the sum could not hold.
    lost = sum(dropped.values())
    run.account(Flow(unit="documents", read=kept + lost, kept=kept, dropped=dict(sorted(dropped.items()))))
    statistics = {f"{number} {_name(step)}": _totals(step) for number, step in enumerate(steps)}
    statistics["documents"] = {"read": task.shard.rows, "written": kept, "made": made}
    return _Passed(writer.shards, statistics)


class _Counted:
    """Counts what passes."""

    def __init__(self) -> None:
        self.passed = 0

    def count(self, documents: Iterable[TroveDocument]) -> Iterator[TroveDocument]:
        """The same documents."""
        for document in documents:
            self.passed += 1
            yield document


def drop_reasons(step: PipelineStep, given: int, passed: int) -> dict[str, int]:
    """Why a step dropped documents, as its statistics say; what they do not explain is counted under its name."""
    lost = given - passed
    if lost <= 0:
        return {}
    name = _name(step)
    reasons = {
        f"{name}_{label.removeprefix(_DROPPED)}": int(total)
        for label, total in _totals(step).items()
        if label.startswith(_DROPPED) and total
    }
    unexplained = lost - sum(reasons.values())
    if unexplained < 0:
        # Statistics that count something else than documents explain nothing.
        return {name: lost}
    return reasons | ({name: unexplained} if unexplained else {})


def _name(step: PipelineStep) -> str:
    return type(step).__name__


def _totals(step: PipelineStep) -> dict[str, float]:
    return {str(label): metric.total for label, metric in step.stats.stats.items()}


def _read(task: _Task, originals: dict[str, Document]) -> Iterator[TroveDocument]:
    for document in iterate_documents(task.pages, shards=[task.shard]):
        originals[document.id] = replace(document, text="")
        metadata = json.loads(document.metadata)
        metadata |= {name: value for name in _OURS if (value := getattr(document, name)) is not None}
        yield TroveDocument(text=document.text, id=document.id, metadata=metadata)


def _back(document: TroveDocument, original: Document | None, source: str) -> Document:
    if not isinstance(document.text, str) or not document.id:
        raise StepError(f"a datatrove step gave a document without text or id: {document.id!r}")
    metadata: dict[str, Any] = {key: value for key, value in document.metadata.items() if key not in _OURS}
    url, language = document.metadata.get("url"), document.metadata.get("language")
    if original is None:
        return make_document(
            document.text, source=source, url=url, position=str(document.id), language=language, metadata=metadata
        )
    text = normalise_text(document.text)
    return replace(
        original, text=text, text_hash=text_hash(text), url=url, language=language, metadata=encode_metadata(metadata)
    )
