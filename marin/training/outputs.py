"""From what the ranks left in the resumable state to the files of the published checkpoint. Imports nothing heavy."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from marin.checkpoint.artifacts import Checkpoint
from marin.checkpoint.layout import published_folder
from marin.checkpoint.progress import MetricsSegment
from marin.checkpoint.state_folder import ByteSink, StateFolder
from marin.execution import StepError
from marin.training.curve import render_curve
from marin.training.job import PermanentCheckpoint, PublishedFile, TrainingJob, TrainingOutcome
from marin.training.metrics import read_segments
from marin.training.tensorboard import write_events

METRICS = "metrics.jsonl"
VALIDATION = "validation.json"
CURVE = "curve.svg"
EVENTS = "tensorboard/events.out.tfevents.0000000000.marin"


class Publisher(Protocol):
    """What of the run around the step is needed here."""

    @property
    def state(self) -> StateFolder: ...

    def write(self, name: str) -> AbstractContextManager[ByteSink]: ...

    def write_json(self, name: str, value: Any) -> None: ...

    def publish(self, name: str, key: str, *, sha256: str | None = None) -> None: ...


def decode_outcome(result: Mapping[str, Any]) -> TrainingOutcome:
    """A rank's outcome, back from the JSON form that it travelled in."""
    fields = dict(result)
    fields["checkpoint"] = tuple(PublishedFile(**file) for file in fields["checkpoint"])
    fields["permanent"] = tuple(
        PermanentCheckpoint(step=one["step"], files=tuple(PublishedFile(**file) for file in one["files"]))
        for one in fields["permanent"]
    )
    fields["metrics"] = tuple(MetricsSegment(**segment) for segment in fields["metrics"])
    fields["validations"] = tuple(fields["validations"])
    return TrainingOutcome(**fields)


def publish(run: Publisher, job: TrainingJob, outcome: TrainingOutcome) -> Checkpoint:
    """Writes the outputs and returns the artifact. Raises StepError for a run whose last validation is not finite: its
    model is of no use, and every step after this one would only say so later.
    """
    if outcome.validations[-1]["loss"] is None and outcome.validations[-1]["tokens"]:
        raise StepError(
            f"the validation loss after step {outcome.step} is not finite, so the model is not published "
            f"({outcome.skipped_steps} steps were skipped). Lower the learning rate, clip gradients, or look at the "
            "data; the curve so far: `marin watch`"
        )
    for file in outcome.checkpoint:
        run.publish(f"{published_folder(None)}/{file.name}", file.key, sha256=file.sha256)
    for permanent in outcome.permanent:
        for file in permanent.files:
            run.publish(f"{published_folder(permanent.step)}/{file.name}", file.key, sha256=file.sha256)
    curve: list[tuple[float, float]] = []
    with run.write(METRICS) as sink:
        for line in read_segments(run.state.store, outcome.metrics, outcome.first_step + 1):
            sink.write(json.dumps(line, allow_nan=False).encode() + b"\n")
            if line["loss"] is not None:
                curve.append((line["step"], line["loss"]))
    with run.write(EVENTS) as sink:
        lines = read_segments(run.state.store, outcome.metrics, outcome.first_step + 1)
        write_events(sink, lines, outcome.validations)
    final = outcome.validations[-1]
    tokens = {source: int(count) for source, count in final["source_tokens"].items()}
    counted = {name: loss for name, loss in outcome.unigram_losses.items() if name in job.heldout}
    unigram = weighted_mean(counted, tokens)
    run.write_json(
        VALIDATION,
        {
            "validations": list(outcome.validations),
            "unigram_losses": outcome.unigram_losses,
            "unit": "nats per token, bits per byte",
        },
    )
    measured = [(done["step"], done["loss"]) for done in outcome.validations if done["loss"] is not None]
    with run.write(CURVE) as sink:
        sink.write(render_curve(curve, measured, None if math.isnan(unigram) else unigram).encode())
    last = curve[-max(1, len(curve) // 10) :]
    return Checkpoint(
        model=job.model,
        step=outcome.step,
        tokens=outcome.tokens,
        skipped_steps=outcome.skipped_steps,
        training_loss=sum(loss for _, loss in last) / len(last),
        validation_loss=math.nan if final["loss"] is None else final["loss"],
        unigram_loss=unigram,
        validation_losses=dict(final["losses"]),
        unigram_losses=dict(outcome.unigram_losses),
        validation_tokens=tokens,
        permanent_steps=tuple(permanent.step for permanent in outcome.permanent),
    )


def weighted_mean(values: Mapping[str, float], weights: Mapping[str, int]) -> float:
    """Mean of the values by their weights, so that the mean over sources is that over all their tokens; NaN when all
    weigh nothing.
    """
    total = sum(weights[name] for name in values)
    return sum(value * weights[name] for name, value in values.items()) / total if total else math.nan
