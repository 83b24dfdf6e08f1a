"""From a permanent checkpoint in the state of a run to the files of an artifact. Imports nothing heavy."""

from __future__ import annotations

import json
import math
from typing import Any

from marin.checkpoint.artifacts import Checkpoint
from marin.checkpoint.completeness import FoundCheckpoint
from marin.checkpoint.layout import FINISH_MARK, PROGRESS, PUBLISHED
from marin.checkpoint.progress import Progress
from marin.execution import Artifact, Run, StepError
from marin.execution.codec import Reference, decode
from marin.model.config import ModelConfig
from marin.training.metrics import read_segments
from marin.training.outputs import METRICS, VALIDATION
from marin.training.permanent import permanent_checkpoints


def publish_permanent(run: Run, identity: str, at_step: int) -> Checkpoint:
    """The body of `permanent_checkpoint`."""
    store = run.state.store
    there = {found.step: found for found in permanent_checkpoints(store, identity)}
    if at_step not in there:
        listed = ", ".join(map(str, there)) or "none yet"
        raise StepError(
            f"the run {identity[:10]} has no permanent checkpoint of step {at_step}; it has {listed}. "
            "training.checkpoints.permanent_every_steps says which steps stay"
        )
    found = there[at_step]
    digests: dict[str, str | None] = {file.name: file.sha256 for file in found.mark.files}
    for name in sorted([*digests, FINISH_MARK]):
        run.publish(f"{PUBLISHED}/{name}", found.keys[name], sha256=digests.get(name))
    progress = Progress.from_bytes(store.read(found.keys[PROGRESS]))
    losses = []
    with run.write(METRICS) as sink:
        for line in read_segments(store, progress.metrics, progress.metrics[0].first if progress.metrics else 1):
            sink.write(json.dumps(line, allow_nan=False).encode() + b"\n")
            losses.append(line["loss"])
    run.write_json(VALIDATION, {"validations": list(progress.validations), "unit": "nats per token, bits per byte"})
    return checkpoint_at(found, progress, [loss for loss in losses if loss is not None])


def checkpoint_at(found: FoundCheckpoint, progress: Progress, losses: list[float]) -> Checkpoint:
    """The artifact; what is only known at the end of a run is NaN."""
    last = losses[-max(1, len(losses) // 10) :]
    measured: dict[str, Any] = progress.validations[-1] if progress.validations else {}
    loss = measured.get("loss")
    return Checkpoint(
        model=decode(progress.identity["model"], ModelConfig, _no_artifact),
        step=found.step,
        tokens=progress.tokens,
        skipped_steps=progress.step - progress.updates,
        training_loss=sum(last) / len(last) if last else math.nan,
        validation_loss=math.nan if loss is None else loss,
        unigram_loss=math.nan,
        validation_losses=dict(measured.get("losses", {})),
        unigram_losses=dict.fromkeys(measured.get("losses", {}), math.nan),
        validation_tokens=dict(measured.get("source_tokens", {})),
        permanent_steps=(),
    )


def _no_artifact(reference: Reference, kind: type[Artifact]) -> Artifact:
    raise StepError(f"a model's settings hold no artifact, but {reference} was found")
