"""What is known of the items of a task from the comparison with documents, and the scores without those found."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    tasks: Iterable[TaskResult], results: Mapping[str, Any], aggregations: Aggregations, overlap: TaskOverlap | None
) -> list[TaskResult]:
    """Task results with the contamination of each task, and each metric over the items that were not found.

    A group has the items of its tasks, but no figure without those found: how it weighs its tasks is its own matter.

    Args:
        tasks: the task results.
        results: lm-eval's own, with samples.
        aggregations: how each task sums up the values of a metric.
        overlap: what is known of the items; None where they were never compared.
    """
    if overlap is None:
        return list(tasks)
    samples: Mapping[str, Sequence[Sample]] = results.get("samples", {})
    return [_judged(task, samples, results.get("group_subtasks", {}), aggregations, overlap) for task in tasks]


def _judged(
    task: TaskResult,
    samples: Mapping[str, Sequence[Sample]],
    groups: Mapping[str, Sequence[str]],
    aggregations: Aggregations,
    overlap: TaskOverlap,
) -> TaskResult:
    # With several filters each item is a sample of each of them.
    states: dict[str, str | None] = {}
    for name in _leaves(task.name, groups):
        for sample in samples.get(name, ()):
            item = overlap.item_of(name, sample)
            states[item] = overlap.overlap.states.get(item)
    clean: defaultdict[tuple[str, str], list[Any]] = defaultdict(list)
    for sample in () if task.group else samples.get(task.name, ()):
        if states[overlap.item_of(task.name, sample)] == NOT_FOUND:
            for metric in sample["metrics"]:
                clean[metric, sample["filter"]].append(sample[metric])
    aggregate = aggregations.get(task.name, {})
    metrics = []
    for figure in task.metrics:
        values = clean.get((figure.name, figure.filter))
        known_value = known(aggregate[figure.name](values)) if values and figure.name in aggregate else None
        metrics.append(replace(figure, clean=known_value))
    return replace(task, metrics=tuple(metrics), contamination=_contamination(overlap.overlap, states.values()))


def _leaves(name: str, groups: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """The tasks of a group at any depth, or the task itself."""
    if name not in groups:
        yield name
    for member in groups.get(name, ()):
        yield from _leaves(member, groups)


def _contamination(overlap: SetOverlap, states: Iterable[str | None]) -> Contamination:
    counts = Counter(states)
    return Contamination(overlap.name, counts.total(), counts[FOUND], counts[NOT_FOUND], overlap.documents)
