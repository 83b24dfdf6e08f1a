"""What can be known to be wrong before a single rank starts. Imports nothing heavy."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

from marin.checkpoint.identity import differences
from marin.checkpoint.layout import PROGRESS, published_folder
from marin.execution import StepError
from marin.model.config import ModelConfig
from marin.tokens.tokenizer.artifacts import Tokenizer
from marin.training.continuation import InitConfig, Take
from marin.training.job import TrainingJob

logger = logging.getLogger(__name__)


def fitted_model(model: ModelConfig, tokenizer: Tokenizer) -> ModelConfig:
    """The model with the tokenizer's vocabulary, when the training text gave fewer entries than were asked for.

    Raises StepError when the tokenizer has more ids than the model has room for.
    """
    if tokenizer.vocab_size > model.vocab_size:
        raise StepError(
            f"model.vocab_size is {model.vocab_size}, but the tokenizer has {tokenizer.vocab_size} ids; "
            f"set model.vocab_size to at least {tokenizer.vocab_size}"
        )
    if tokenizer.vocab_size < model.vocab_size:
        logger.info("the model's vocabulary is the tokenizer's %d ids, not %d", tokenizer.vocab_size, model.vocab_size)
    return replace(model, vocab_size=tokenizer.vocab_size)


def init_faults(job: TrainingJob) -> list[str]:
    """What is wrong with the checkpoint that a run is to begin from."""
    checkpoint, config = job.init, job.init_config
    if checkpoint is None:
        return (
            [] if config == InitConfig() else ["init_config is given without init: say which checkpoint to begin from"]
        )
    if config.at_step is not None and config.at_step not in checkpoint.permanent_steps:
        kept = ", ".join(map(str, checkpoint.permanent_steps)) or "none"
        return [f"init_config.at_step is {config.at_step}; the permanent checkpoints are {kept}"]
    step = checkpoint.step if config.at_step is None else config.at_step
    if config.schedule is Take.CONTINUED and step >= job.training.last_step:
        last = job.training.last_step
        return [f"the schedule goes on after step {step}, but the run ends after step {last}; give more steps"]
    stored = json.loads(checkpoint.read(f"{published_folder(config.at_step)}/{PROGRESS}"))["identity"]
    return [
        f"the checkpoint's run had other settings (its own -> this run's): {line}; name what may differ in "
        "init_config.may_differ"
        for line in differences(stored, job.identity(), config.allowed)
    ]


def check_job(job: TrainingJob, workers: int) -> None:
    """Raises StepError with every fault of the job on `workers` ranks: parallel plan, batch, empty inputs."""
    faults = []
    for check in (
        lambda: job.training.parallel.check(job.model, workers),
        lambda: job.training.micro_batches(workers),
    ):
        try:
            check()
        except ValueError as error:
            faults.append(f"training: {error}")
    faults += init_faults(job)
    if not any(shards.tokens for shards in job.heldout.values()):
        faults.append("no held-out source has a token: a run without a validation loss says nothing")
    if faults:
        raise StepError("the run cannot start:\n  " + "\n  ".join(faults))
    for source, shards in job.heldout.items():
        if not shards.tokens:
            logger.warning("the held-out source %r has no token and is left out of the validation loss", source)
