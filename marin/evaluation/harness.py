"""Runs lm-eval tasks from folders of YAML files; the tasks that ship with lm-eval are never indexed (29 s)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval import evaluator
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager

from marin.execution import StepError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """lm-eval's own results, samples included, and how each task sums up the values of a metric."""

    results: dict[str, Any]
    aggregations: Mapping[str, Mapping[str, Callable[[Sequence[Any]], Any]]]


class TaskFolders:
    """The tasks and groups that some folders define."""

    def __init__(self, folders: Iterable[Path | str]) -> None:
        self.folders = [Path(folder) for folder in folders]
        for folder in self.folders:
            if not folder.is_dir():
                raise StepError(f"evaluation.task_folders names {folder}, which is no folder on this machine")
        self._manager = TaskManager(include_path=self.folders, include_defaults=False)

    @property
    def names(self) -> list[str]:
        """Every task, group and tag that is defined here."""
        return list(self._manager.all_tasks)

    def check(self, names: Sequence[str]) -> None:
        """Raises `StepError` for a name that no folder defines."""
        if missing := [name for name in names if name not in self.names]:
            raise StepError(
                f"no YAML file of {', '.join(map(str, self.folders))} defines the task {missing[0]!r}; "
                f"defined are {', '.join(self.names) or 'none'}"
            )

    def load(self, name: str) -> Any:
        """One task or group as lm-eval loads it. Raises `StepError` when it cannot be loaded."""
        self.check([name])
        try:
            return self._manager.load([name])
        except Exception as error:
            raise StepError(
                f"the evaluation task {name!r} cannot be loaded: {type(error).__name__}: {error}"
            ) from error

    def run(self, model: LM, name: str, *, limit: int | None, bootstrap_iterations: int) -> Outcome:
        """The results of one task or group."""
        loaded = self.load(name)
        results: dict[str, Any] | None = evaluator.evaluate(
            model, loaded, limit=limit, bootstrap_iters=bootstrap_iterations, log_samples=True
        )
        if results is None:
            raise StepError(f"lm-eval returned no results for the task {name!r}")
        return Outcome(results, {task_name: task.aggregation() for task_name, task in loaded["tasks"].items()})
