"""Evaluation sets from held-out documents.

Imports pyarrow; import this module inside step bodies only.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from marin.data.documents.artifacts import Attributes, Documents
from marin.data.documents.attributes import read_attributes
from marin.data.documents.io import iterate_batches
from marin.data.documents.split import split_of
from marin.data.evalsets.artifacts import CHOICE_FILE, ITEMS_FILE, ROLLING_FILE, EvalSet
from marin.data.evalsets.config import EvalSetConfig
from marin.data.evalsets.continuations import choice_items, continuations
from marin.data.filtering.pii import mask
from marin.execution import Flow, StepError, current_run, derive_seed


@dataclass(frozen=True)
class HeldOutDocument:
    """A document that never trains. Its addresses are masked, as they are in documents that do."""

    id: str
    source: str
    text: str


def build_from_documents(
    pages: Sequence[Documents], signals: Sequence[Attributes], duplicates: Attributes, config: EvalSetConfig
) -> EvalSet:
    """Collect the held-out documents and write the set; the body of the step."""
    if len(pages) != len(signals):
        raise StepError(
            f"build_evalset got {len(pages)} documents and {len(signals)} signals; give the signals of each, in order"
        )
    documents = list(_held_out(pages, signals, duplicates, config))
    return write_evalset(documents, config)


def write_evalset(documents: Sequence[HeldOutDocument], config: EvalSetConfig) -> EvalSet:
    """Write the files of a set; the same for any order of the documents.

    Raises:
        StepError: there are too few held-out documents for what is asked.
    """
    run = current_run()
    pool = [
        item for document in documents for item in continuations(document.id, document.source, document.text, config)
    ]
    choices = choice_items(pool, config) if config.choice_items else []
    rolling = rolling_documents(documents, config)
    if (config.choice_items and not choices) or (config.rolling_documents and not rolling):
        raise StepError(
            f"the {len(documents)} held-out documents give {len(choices)} multiple-choice items and {len(rolling)} "
            f"perplexity documents; raise validation_share ({config.validation_share}), take more pages, or set "
            "choice_items and rolling_documents to 0"
        )
    items = [*_choice_texts(choices), *({"id": row["id"], "text": row["text"]} for row in rolling)]
    for name, rows in ((CHOICE_FILE, choices), (ROLLING_FILE, rolling), (ITEMS_FILE, items)):
        with run.write(name) as stream:
            for row in rows:
                stream.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    return EvalSet(
        name=config.name,
        items=len(items),
        choice_items=len(choices),
        rolling_documents=len(rolling),
        validation_share=config.validation_share,
        sources=tuple(sorted({row["source"] for row in (*choices, *rolling)})),
    )


def rolling_documents(documents: Sequence[HeldOutDocument], config: EvalSetConfig) -> list[dict[str, Any]]:
    """Documents of the perplexity task, sources taking turns, long ones cut."""
    by_source: dict[str, list[HeldOutDocument]] = {}
    for document in sorted(documents, key=lambda document: document.id):
        by_source.setdefault(document.source, []).append(document)
    for source, queue in by_source.items():
        random.Random(derive_seed(config.seed, f"{config.name}/rolling/{source}")).shuffle(queue)
    chosen = [
        queue[turn]
        for turn in range(max(map(len, by_source.values()), default=0))
        for _, queue in sorted(by_source.items())
        if turn < len(queue)
    ]
    return [
        {
            "id": f"{document.id}:rolling",
            "source": document.source,
            "text": _cut(document.text, config.rolling_characters),
            "document_id": document.id,
        }
        for document in chosen[: config.rolling_documents]
    ]


def _cut(text: str, limit: int) -> str:
    """The first characters of a text, up to the last line break in the second half of them, or else the last space."""
    if len(text) <= limit:
        return text
    part = text[:limit]
    for sign in ("\n", " "):
        if part.rfind(sign) > limit // 2:
            return part[: part.rfind(sign)]
    return part


def _choice_texts(choices: Iterable[dict[str, Any]]) -> Iterator[dict[str, str]]:
    for row in choices:
        yield {"id": row["id"], "text": f"{row['context']} {row['choices'][row['answer']]}"}


def _held_out(
    pages: Sequence[Documents], signals: Sequence[Attributes], duplicates: Attributes, config: EvalSetConfig
) -> Iterator[HeldOutDocument]:
    read = kept = trains = filtered = copies = 0
    for documents, attributes in zip(pages, signals, strict=True):
        for shard in documents.shards:
            judged = read_attributes(attributes, documents, shard, columns=("id", "reason")).to_pydict()
            removed = read_attributes(duplicates, documents, shard, columns=("reason",)).column("reason").to_pylist()
            wanted: list[bool] = []
            for document_id, reason, copy in zip(judged["id"], judged["reason"], removed, strict=True):
                read += 1
                held_out = split_of(document_id, config.validation_share) == "validation"
                trains += not held_out
                filtered += held_out and reason is not None
                copies += held_out and reason is None and copy is not None
                wanted.append(held_out and reason is None and copy is None)
            kept += sum(wanted)
            if any(wanted):
                yield from _texts(documents, shard.source, shard, wanted)
    dropped = {"trains": trains, "filtered": filtered, "duplicate": copies}
    current_run().account(
        Flow(unit="documents", read=read, kept=kept, dropped={name: n for name, n in dropped.items() if n})
    )


def _texts(documents: Documents, source: str, shard: Any, wanted: Sequence[bool]) -> Iterator[HeldOutDocument]:
    row = 0
    for batch in iterate_batches(documents, shard, columns=("id", "text")):
        for document_id, text in zip(batch.column("id"), batch.column("text"), strict=True):
            if wanted[row]:
                yield HeldOutDocument(document_id.as_py(), source, mask(text.as_py()).text)
            row += 1
