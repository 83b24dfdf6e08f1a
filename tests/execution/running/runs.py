"""Running one target, and what became of it."""

from __future__ import annotations

from typing import Any

from marin.execution import (
    Artifact,
    Runner,
    RunOptions,
    RunResult,
    make_plan,
)
from marin.execution.running.inline import InlineBackend
from marin.execution.running.worker import Failure
from marin.storage import Store


def run(target: Artifact, store: Store, backend: Any = InlineBackend, **options: Any) -> RunResult:
    settings = RunOptions(**{"retry_pause": 0.01, **options})
    return Runner(store, make_plan([target], store), settings, backend).run()


def statuses(result: RunResult) -> dict[str, str]:
    return {p.step.call.label or p.step.name: p.status.name for p in result.steps}


def failure_of(result: RunResult) -> Failure:
    (progress,) = result.failures
    assert progress.failure is not None
    return progress.failure
