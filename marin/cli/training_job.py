"""`marin training-job`: the training step of an experiment as a file for `torchrun -m marin.training --config FILE`."""

from __future__ import annotations

import re
import sys
from typing import Any

from marin.cli.arguments import USAGE_ERROR, fail
from marin.cli.experiment_file import build_of
from marin.cli.overrides import effective
from marin.execution import PlannedStep, StepError, UnstableValue, make_plan
from marin.execution.running.call_file import call_file
from marin.recipes import scale_named, scale_names
from marin.storage import open_store

STEP = "model/pretrain"


def run(arguments: dict[str, Any], rest: list[str], flags: list[str]) -> int:
    """Print the file; returns the exit code."""
    import yaml

    scale, prefix, pattern = arguments["scale"], arguments["prefix"], arguments["step"]
    if scale not in scale_names():
        fail(f"--scale: {scale!r} is none of {', '.join(scale_names())}", USAGE_ERROR)
    build = build_of(arguments["experiment"], "EXPERIMENT")
    settings = effective(scale_named(scale), arguments["config"], rest, flags)
    store = open_store(prefix)
    try:
        plan = make_plan([build(settings)], store)
    except (ValueError, UnstableValue) as error:
        fail(str(error), USAGE_ERROR)
    described = call_file(chosen(plan.steps, pattern), store)
    sys.stdout.write(yaml.safe_dump(described, sort_keys=False, allow_unicode=True, width=120))
    return 0


def chosen(steps: list[PlannedStep], pattern: str | None) -> PlannedStep:
    """The one training step that the pattern means; raises `StepError` when it means none or several."""
    found = [step for step in steps if step.name == STEP]
    if pattern is not None:
        found = [step for step in found if re.search(pattern, step.display)]
    if len(found) != 1:
        named = ", ".join(step.display for step in steps if step.name == STEP) or "none"
        raise StepError(
            f"--step {pattern or ''} means {len(found)} of the experiment's training steps ({named}); give a part of "
            "the name of one"
        )
    return found[0]
