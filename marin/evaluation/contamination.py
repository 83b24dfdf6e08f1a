"""What is known of the items of a task from the comparison with documents, and the scores without those found."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from marin.data.evalsets.overlap import FOUND, NOT_FOUND, SetOverlap
from marin.evaluation.artifacts import Contamination, TaskResult
from marin.evaluation.results import known

Sample = Mapping[str, Any]
Aggregations = Mapping[str, Mapping[str, Callable[[Sequence[Any]], Any]]]


@dataclass(frozen=True)
class TaskOverlap:
    """What documents share with the items of a task.

    Attributes:
        overlap: that of the evaluation set that the items were compared as.
        item_of: the id in that set of a sample of a task.
    """

    overlap: SetOverlap
    item_of: Callable[[str, Sample], str]

    @staticmethod
    def of(overlap: SetOverlap | None, item_of: Callable[[str, Sample], str]) -> TaskOverlap | None:
        """None where the set was never compared."""
        return None if overlap is None else TaskOverlap(overlap, item_of)


def own_item(task: str, sample: Sample) -> str:
    """The id of an item of the pipeline's own tasks."""
    return str(sample["doc"]["id"])


def further_item(task: str, sample: Sample) -> str:
    """The id of a document of a further task."""
    return f"{task}/{sample['doc_id']}"


def of_sets(overlaps: Mapping[str, SetOverlap]) -> tuple[Contamination, ...]:
    """The contamination of every evaluation set, by name."""
    return tuple(_contamination(one, one.states.values()) for _, one in sorted(overlaps.items()))


def with_contamination(
    results: Iterable[TaskResult],
    samples: Mapping[str, Sequence[Sample]],
    aggregations: Aggregations,
    overlap: TaskOverlap | None,
) -> list[TaskResult]:
    """Task results with the contamination of each task, and each metric over the items that were not found.

    A group has samples of no task of its own, and is left as it is.
    """
    return [
        result
        if overlap is None or result.group or result.name not in samples
        else _judged(result, samples[result.name], aggregations.get(result.name, {}), overlap)
        for result in results
    ]


def _judged(
    result: TaskResult,
    samples: Sequence[Sample],
    aggregations: Mapping[str, Callable[[Sequence[Any]], Any]],
    overlap: TaskOverlap,
) -> TaskResult:
    # With several filters each item is a sample of each of them.
    states: dict[str, str | None] = {}
    clean: defaultdict[tuple[str, str], list[Any]] = defaultdict(list)
    for sample in samples:
        item = overlap.item_of(result.name, sample)
        states[item] = overlap.overlap.states.get(item)
        if states[item] == NOT_FOUND:
            for metric in sample["metrics"]:
                clean[metric, sample["filter"]].append(sample[metric])
    metrics = []
    for metric in result.metrics:
        values = clean.get((metric.name, metric.filter))
        aggregate = aggregations.get(metric.name)
        metrics.append(replace(metric, clean=known(aggregate(values)) if values and aggregate else None))
    contamination = _contamination(overlap.overlap, states.values())
    return replace(result, metrics=tuple(metrics), contamination=contamination)


def _contamination(overlap: SetOverlap, states: Iterable[str | None]) -> Contamination:
    counts = Counter(states)
    return Contamination(overlap.name, counts.total(), counts[FOUND], counts[NOT_FOUND], overlap.documents)
