"""Evaluation sets from held-out documents.

Imports pyarrow and numpy; import this module inside step bodies only.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from marin.data.documents.artifacts import Attributes, Documents
from marin.data.evalsets.artifacts import CHOICE_FILE, ITEMS_FILE, ROLLING_FILE, EvalSet
from marin.data.evalsets.config import EvalSetConfig
from marin.data.evalsets.continuations import choice_items
from marin.data.evalsets.pool import (
    FindTask,
    HeldOutDocument,
    ReadTask,
    choose_held_out,
    find_held_out,
    held_out_documents,
    read_held_out,
)
from marin.execution import StepError, current_run, derive_seed


def build_from_documents(
    pages: Sequence[Documents], signals: Sequence[Attributes], duplicates: Attributes, config: EvalSetConfig
) -> EvalSet:
    """Choose held-out documents over all shards, read those, and write the set; the body of the step."""
    if len(pages) != len(signals):
        raise StepError(
            f"build_evalset got {len(pages)} documents and {len(signals)} signals; give the signals of each, in order"
        )
    run = current_run()
    places = [
        (documents, attributes, shard)
        for documents, attributes in zip(pages, signals, strict=True)
        for shard in documents.shards
    ]
    found = run.map(
        find_held_out,
        [FindTask(documents, shard, attributes, duplicates, config) for documents, attributes, shard in places],
    )
    chosen = choose_held_out([shard.source for _, _, shard in places], found, config.pool_documents)
    files = run.map(
        read_held_out,
        [
            ReadTask(documents, shard, rows, config)
            for (documents, _, shard), rows in zip(places, chosen, strict=True)
            if rows
        ],
    )
    return write_evalset([document for file in files for document in held_out_documents(file)], config)


def write_evalset(documents: Sequence[HeldOutDocument], config: EvalSetConfig) -> EvalSet:
    """Write the files of a set; the same for any order of the documents.

    Raises:
        StepError: there are too few held-out documents for what is asked.
    """
    run = current_run()
    pool = [item for document in documents for item in document.continuations]
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
    """Documents of the perplexity task, sources taking turns."""
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
            "text": document.opening,
            "document_id": document.id,
        }
        for document in chosen[: config.rolling_documents]
    ]


def _choice_texts(choices: Iterable[dict[str, Any]]) -> Iterator[dict[str, str]]:
    for row in choices:
        yield {"id": row["id"], "text": f"{row['context']} {row['choices'][row['answer']]}"}
