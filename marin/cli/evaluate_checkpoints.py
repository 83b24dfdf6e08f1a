"""`marin evaluate-checkpoints`: the experiment's evaluation on the permanent checkpoints of its run, while it goes on.

Every evaluation is a step of its own: it is done once, its report is a record, and training never waits for it.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from typing import TYPE_CHECKING, Any

from marin.checkpoint.artifacts import Checkpoint
from marin.cli.arguments import RUN_ERROR, USAGE_ERROR, fail
from marin.cli.experiment import start_backend
from marin.cli.experiment_file import build_of
from marin.cli.overrides import effective
from marin.cli.training_job import chosen
from marin.evaluation.artifacts import EvalReport
from marin.execution import (
    Artifact,
    Plan,
    PlannedStep,
    Runner,
    RunOptions,
    StepError,
    UnstableValue,
    make_plan,
)
from marin.execution.artifact import call_of, handle_of
from marin.execution.planning.plan import record_of
from marin.execution.records import materialise_record
from marin.execution.running.console import console_for
from marin.recipes import scale_named, scale_names
from marin.storage import Store, open_store
from marin.training.permanent import permanent_checkpoint, permanent_checkpoints

if TYPE_CHECKING:
    from marin.execution.running.inline import Backend


def run(arguments: dict[str, Any], rest: list[str], flags: list[str]) -> int:
    """Evaluate what is there, and with `--watch` what comes, until the run has ended; returns the exit code."""
    scale = arguments["scale"]
    if scale not in scale_names():
        fail(f"--scale: {scale!r} is none of {', '.join(scale_names())}", USAGE_ERROR)
    build = build_of(arguments["experiment"], "EXPERIMENT")
    settings = effective(scale_named(scale), arguments["config"], rest, flags)
    store = open_store(arguments["prefix"])
    seen: set[int] = set()
    while True:
        try:
            plan = make_plan([build(settings)], store)
        except (ValueError, UnstableValue) as error:
            fail(str(error), USAGE_ERROR)
        trained = chosen(plan.steps, arguments["step"])
        ended = store.exists(trained.record_key)
        code = evaluate_new(plan, trained, store, arguments["cluster"], seen)
        if code or arguments["watch"] is None or ended:
            return code
        time.sleep(arguments["watch"])


def evaluate_new(plan: Plan, trained: PlannedStep, store: Store, cluster: str | None, seen: set[int]) -> int:
    """Evaluate the permanent checkpoints that are not in `seen`, which grows by them; returns the exit code."""
    steps = [found.step for found in permanent_checkpoints(store, trained.identity) if found.step not in seen]
    if not steps:
        print(f"{trained.display} has no permanent checkpoint{' beyond those' if seen else ' yet'}")
        return 0
    evaluations = [step for step in plan.steps if step.call.step.result_type is EvalReport and trained in step.upstream]
    if not evaluations:
        raise StepError(f"the experiment evaluates no {trained.display}")
    targets = {(one.display, step): on_checkpoint(one, trained, step) for one in evaluations for step in steps}
    small = make_plan(list(targets.values()), store)
    if small.to_do():

        def backend() -> Backend:
            return start_backend(small, store, cluster)

        console = console_for(sys.stdout)
        try:
            result = Runner(store, small, RunOptions(max_concurrent=2), backend, console).run()
        finally:
            console.close()
        if not result.succeeded:
            return RUN_ERROR
    for (_, step), target in zip(targets, small.targets, strict=True):
        report = materialise_record(store, record_of(target, store), EvalReport)
        assert isinstance(report, EvalReport)
        print(line(step, report))
    seen.update(steps)
    return 0


def on_checkpoint(evaluation: PlannedStep, trained: PlannedStep, at_step: int) -> Artifact:
    """The evaluation with a permanent checkpoint in the place of the run's last one."""
    permanent = permanent_checkpoint(trained.identity, at_step).label(f"step-{at_step}")
    call = evaluation.call
    arguments = {
        name: permanent if isinstance(value, Checkpoint) and call_of(value) is trained.call else value
        for name, value in call.arguments.items()
    }
    label = f"{call.label}-step-{at_step}" if call.label else f"step-{at_step}"
    return handle_of(call.step.result_type, dataclasses.replace(call, arguments=arguments, label=label))


def line(step: int, report: EvalReport) -> str:
    """One line: the step, the compression, and each task's first metric."""
    bits = "" if report.bits_per_byte is None else f"{report.bits_per_byte:.4f} bits per byte"
    tasks = [
        f"{task.name} {task.metrics[0].name} {task.metrics[0].value:.4f}"
        for task in report.tasks
        if task.metrics and task.metrics[0].value is not None
    ]
    return f"step {step:>9,}  " + "; ".join([bits, *tasks])
