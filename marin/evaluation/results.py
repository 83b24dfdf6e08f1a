"""lm-eval's results as typed figures and strict JSON: what is not known is null, never NaN, "N/A" or a missing row."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

from marin.evaluation.artifacts import Metric, TaskResult

CHANCE_METRICS = frozenset({"acc", "acc_norm", "acc_bytes"})
"""Metrics for which a uniform guess among the choices has a known expectation."""


def task_results(results: Mapping[str, Any]) -> list[TaskResult]:
    """Every task and group of one lm-eval result, groups first."""
    groups = results.get("groups", {})
    rows = [_task_result(name, row, results, group=name in groups) for name, row in results["results"].items()]
    return sorted((row for row in rows if row.metrics), key=lambda row: (not row.group, row.name))


def _task_result(name: str, row: Mapping[str, Any], results: Mapping[str, Any], *, group: bool) -> TaskResult:
    chance = _chance(results.get("samples", {}).get(name, ()))
    better = results.get("higher_is_better", {}).get(name, {})
    metrics = []
    for key, value in row.items():
        metric, comma, filter_name = key.partition(",")
        if not comma or metric.endswith("_stderr"):
            continue
        metrics.append(
            Metric(
                name=metric,
                filter=filter_name,
                value=known(value),
                stderr=known(row.get(f"{metric}_stderr,{filter_name}")),
                chance=chance if metric in CHANCE_METRICS else None,
                higher_is_better=better.get(metric),
            )
        )
    return TaskResult(
        name, group, int(row.get("sample_len", 0)), int(results["n-shot"].get(name, 0) or 0), tuple(metrics)
    )


def _chance(samples: Iterable[Mapping[str, Any]]) -> float | None:
    """Expected accuracy of a uniform guess: the mean of 1 / choices; None for tasks without choices."""
    sizes = [len(sample["arguments"]) for sample in samples]
    if not sizes or min(sizes) < 2:
        return None
    return math.fsum(1.0 / size for size in sizes) / len(sizes)


def known(value: Any) -> float | None:
    """A finite number, or None for whatever stands for an unknown one."""
    if isinstance(value, str) or value is None:
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def document_records(results: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One record a document of each task: its own metrics beside the responses they come from."""
    for name, samples in results.get("samples", {}).items():
        for sample in samples:
            rest = {key: value for key, value in sample.items() if key not in ("doc_id", "resps", "arguments")}
            yield {"task": name, "document": sample["doc_id"], **rest}


def configurations(results: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of each task as lm-eval used it, without the places of files on this machine."""
    told = {}
    for name, config in results.get("configs", {}).items():
        row = {key: value for key, value in config.items() if key not in ("dataset_kwargs", "metadata")}
        row["metadata"] = {k: v for k, v in (config.get("metadata") or {}).items() if k != "config_source"}
        told[name] = row
    return told


def strict_json_lines(records: Iterable[Mapping[str, Any]]) -> bytes:
    """Standard JSON, one object a line; what JSON has no number for is null."""
    return b"".join(
        json.dumps(plain(record), allow_nan=False, ensure_ascii=False).encode() + b"\n" for record in records
    )


def plain(value: Any) -> Any:
    """`value` in standard JSON's types: infinities and NaN are null, dataclasses objects, functions their names."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((plain(item) for item in value), key=str)
    if hasattr(value, "tolist"):  # numpy's scalars and arrays
        return plain(value.tolist())
    if callable(value):
        return getattr(value, "__qualname__", type(value).__name__)
    return str(value)
