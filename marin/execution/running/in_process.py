"""A graph run in this process, for tests and notebooks."""

from __future__ import annotations

from typing import Any

from marin.execution.artifact import Artifact
from marin.execution.failures import StepError
from marin.execution.planning.plan import make_plan, record_of
from marin.execution.records import materialise_record
from marin.execution.running.inline import InlineBackend
from marin.execution.running.runner import Runner, RunOptions
from marin.storage import open_store


def materialise(target: Artifact, prefix: str) -> Any:
    """Run a graph in this process, without Ray, and return the materialised target. For tests and notebooks.

    Raises `StepError` with the cause when a step fails.
    """

    store = open_store(prefix)
    plan = make_plan([target], store)
    if plan.to_do():
        result = Runner(store, plan, RunOptions(max_concurrent=1), InlineBackend).run()
        for progress in result.failures:
            assert progress.failure is not None
            failure = progress.failure
            detail = "" if failure.expected else f"\n{failure.trace}"
            raise StepError(f"{progress.step.display} failed: {failure.error}: {failure.message}{detail}")
    chosen = plan.targets[0]
    return materialise_record(store, record_of(chosen, store), chosen.call.step.result_type)
