"""Evaluation sets from JSON-lines files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from marin.data.documents.normalise import normalise_text
from marin.data.evalsets.artifacts import ITEMS_FILE, EvalSet
from marin.data.evalsets.config import EvalFileConfig
from marin.execution import Flow, StepError, current_run


def load_from_files(config: EvalFileConfig) -> EvalSet:
    """Read the items and keep their text; the body of the step."""
    run = current_run()
    dropped: Counter[str] = Counter()
    read = kept = 0
    with run.write(ITEMS_FILE) as stream:
        for number, file in enumerate(config.files):
            for place, line in _lines(f"evaluation set {config.name!r}, files[{number}]", file.path):
                read += 1
                item = parse_item(line, place, config, dropped)
                if item is not None:
                    item["id"] = f"{config.name}/{number}/{item['id']}" if len(config.files) > 1 else item["id"]
                    stream.write(json.dumps(item, ensure_ascii=False).encode() + b"\n")
                    kept += 1
    run.account(Flow(unit="items", read=read, kept=kept, dropped=dict(sorted(dropped.items()))))
    if not kept:
        raise StepError(
            f"the evaluation set {config.name!r} has no item: {read} lines read, {dict(dropped)} dropped from "
            f"{', '.join(file.path for file in config.files)}"
        )
    return EvalSet(
        name=config.name, items=kept, choice_items=0, rolling_documents=0, validation_share=0.0, sources=(config.name,)
    )


def _lines(field: str, path: str) -> Iterator[tuple[str, str]]:
    """The lines of a file that are not blank, each with its place."""
    from marin.data.inputs.files import open_unpacked
    from marin.data.inputs.packing import PackingError

    number = 0
    try:
        with open_unpacked(field, path) as stream:
            for number, data in enumerate(stream, 1):
                line = data.decode("utf-8-sig" if number == 1 else "utf-8", "replace")
                if line.strip():
                    yield f"{path}:{number}", line
    except PackingError as error:
        # With half of a set, what it should keep out of training would come in.
        raise StepError(f"{field}: {path!r} is {error.damage} after line {number}; get the file again") from error


def parse_item(line: str, place: str, config: EvalFileConfig, dropped: Counter[str]) -> dict[str, Any] | None:
    """The id and text of one line, or None with a reason counted.

    Raises:
        StepError: the line has none of the named fields, so the names are probably wrong.
    """
    try:
        row = json.loads(line)
    except ValueError:
        dropped["broken_json"] += 1
        return None
    if not isinstance(row, dict):
        dropped["not_an_object"] += 1
        return None
    missing = [name for name in config.fields if name not in row]
    if missing:
        raise StepError(
            f"{place} lacks the field {missing[0]!r} of the evaluation set {config.name!r}; it has {sorted(row)}"
        )
    number = row.get(config.id_field) if config.id_field else None
    item = item_of(str(place.rpartition(":")[2] if number is None else number), (row[name] for name in config.fields))
    if item is None:
        dropped["no_text"] += 1
    return item


def item_of(name: str, fields: Iterable[Any]) -> dict[str, Any] | None:
    """An item as ``items.jsonl`` has it, from its fields in order; None where they hold no text."""
    parts = [text for field in fields if (text := normalise_text("\n".join(_texts([field])))).strip()]
    return {"id": name, "text": "\n".join(parts), "parts": parts} if parts else None


def _texts(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            yield from _texts(value)
        elif isinstance(value, dict):
            yield from _texts(value.values())
