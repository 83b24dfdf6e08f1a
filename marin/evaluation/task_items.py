"""The documents of an lm-eval task as items of an evaluation set."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from marin.data.evalsets.artifacts import ITEMS_FILE, EvalSet
from marin.data.evalsets.files import item_of
from marin.evaluation.config import TaskConfig
from marin.evaluation.harness import TaskFolders
from marin.execution import Flow, StepError, current_run


def read_task(config: TaskConfig) -> EvalSet:
    """Read the documents that a task would be scored on; the body of the step `load_task`."""
    run = current_run()
    tasks = TaskFolders(config.folders).load(config.name)["tasks"]
    dropped: Counter[str] = Counter()
    read = kept = 0
    with run.write(ITEMS_FILE) as stream:
        for name, task in sorted(tasks.items()):
            for number, document in enumerate(task.eval_docs):
                read += 1
                item = item_of(f"{name}/{number}", shown(task, document))
                if item is None:
                    dropped["no_text"] += 1
                    continue
                kept += 1
                stream.write(json.dumps(item, ensure_ascii=False).encode() + b"\n")
    run.account(Flow(unit="items", read=read, kept=kept, dropped=dict(dropped)))
    if not kept:
        raise StepError(f"the evaluation task {config.name!r} has no document with text ({read} were read)")
    return EvalSet(
        name=config.name, items=kept, choice_items=0, rolling_documents=0, validation_share=0.0, sources=(config.name,)
    )


def shown(task: Any, document: Mapping[str, Any]) -> list[Any]:
    """What a model sees of a document: fields that the prompt shows in their order there, choices, answer.

    Fields and not the prompt as a whole, whose own words stand between them and in no copy of the document. A prompt
    that shows no field as it is stands for itself.
    """
    prompt = task.doc_to_text(document)
    prompt = prompt if isinstance(prompt, str) else ""
    texts = {text for text in _texts(document) if text.strip() and text in prompt}
    parts: list[Any] = sorted(texts, key=lambda text: (prompt.index(text), -len(text)))
    parts = [text for text in parts if not any(text != other and text in other for other in parts)] or [prompt]
    if task.config.doc_to_choice is not None:
        parts.extend(task.doc_to_choice(document))
    target = task.doc_to_target(document)
    answers = target if isinstance(target, list) else [target]
    parts.extend(answer for answer in answers if isinstance(answer, str) and answer not in parts)
    return parts


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _texts(one)
