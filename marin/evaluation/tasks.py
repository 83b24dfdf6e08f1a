"""The pipeline's own lm-eval tasks: held-out items as local JSON files, with a YAML configuration beside each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

CHOICE = "heldout_choice"
ROLLING = "heldout_rolling"
VERSION = 1


def write_choice_task(folder: Path, items: Sequence[dict[str, Any]]) -> bool:
    """Write the multiple-choice task; False, and nothing written, when there are no items.

    Contexts and choices come without blanks at their edges, and one is put between them. acc takes the likeliest
    choice, acc_norm the likeliest per character.
    """
    return _write(
        folder,
        CHOICE,
        items,
        ("id", "source", "context", "choices", "answer", "document_id"),
        {
            "output_type": "multiple_choice",
            "doc_to_text": "context",
            "doc_to_choice": "choices",
            "doc_to_target": "answer",
            "target_delimiter": " ",
            "metric_list": [
                {"metric": "acc", "aggregation": "mean", "higher_is_better": True},
                {"metric": "acc_norm", "aggregation": "mean", "higher_is_better": True},
            ],
        },
    )


def write_rolling_task(folder: Path, documents: Sequence[dict[str, Any]]) -> bool:
    """Write the rolling perplexity task; False, and nothing written, when there are no documents."""
    return _write(
        folder,
        ROLLING,
        documents,
        ("id", "source", "text", "document_id"),
        {
            "output_type": "loglikelihood_rolling",
            "doc_to_text": "",
            "doc_to_target": "text",
            "metric_list": [
                {"metric": "bits_per_byte", "aggregation": "bits_per_byte", "higher_is_better": False},
                {"metric": "byte_perplexity", "aggregation": "weighted_perplexity", "higher_is_better": False},
            ],
        },
    )


def _write(
    folder: Path, name: str, rows: Sequence[dict[str, Any]], columns: Sequence[str], task: dict[str, Any]
) -> bool:
    if not rows:
        return False
    data = folder / f"{name}.jsonl"
    with data.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps({column: row[column] for column in columns}, ensure_ascii=False) + "\n")
    config = {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "test_split": "test",
        "num_fewshot": 0,
        **task,
        "metadata": {"version": VERSION},
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    return True
